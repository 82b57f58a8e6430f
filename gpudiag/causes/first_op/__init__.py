"""Operations that fail, or compute wrong results."""
