//! The limits of requests and replies.

/// The bytes of a request, which is one line.
pub(crate) const REQUEST_BYTES_MAX: usize = 1 << 20;
/// The characters of the content of a reply.
pub(crate) const REPLY_CHARS: usize = 8_000;
/// The characters of one message in a reply that has several.
pub(crate) const MESSAGE_CHARS: usize = 1_200;
/// The characters of a value on one line.
pub(crate) const BRIEF_CHARS: usize = 300;
/// The bytes of the words of a search, which are those of the engine.
pub(crate) const QUERY_BYTES_MAX: usize = 1_024;
/// The bytes of a point, a name or a cursor.
pub(crate) const NAME_BYTES_MAX: usize = 1_024;
/// The bytes of an error that is looked up, or of a text that is written.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 10;
/// The rows of a reply.
pub(crate) const ROWS_MAX: u64 = 100;
/// The threads in which an error is shown.
pub(crate) const FIXES_MAX: u64 = 10;
/// The messages that are shown after an error.
pub(crate) const MESSAGES_AFTER: u64 = 6;
/// The hits of one search for an error, among which its threads are.
pub(crate) const ERROR_HITS: usize = 100;
/// The last checkpoints, or items, that a reply names unless it is asked for more.
pub(crate) const ROWS_DEFAULT: u64 = 20;

const _: () = assert!(MESSAGE_CHARS < REPLY_CHARS, "a reply has room for a message");
const _: () = assert!(TEXT_BYTES_MAX < REQUEST_BYTES_MAX, "a request has room for the longest text");
