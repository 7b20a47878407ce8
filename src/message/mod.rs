//! Floor 1: a chat message is plain data.
