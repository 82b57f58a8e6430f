"""What several causes look at, each module for those of one matter."""
