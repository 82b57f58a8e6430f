"""The check before the first test, in the process that started the session, and the header line."""

from __future__ import annotations
