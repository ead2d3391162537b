"""The life of a session: forked, saved, cancelled, gone on with, hit by an error."""
