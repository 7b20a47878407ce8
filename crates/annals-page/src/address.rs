//! The addresses of screens: percent-encoding, and the point that an address names.

use std::fmt::Write as _;

use annals::history::Snapshot;

/// Bytes that stand for themselves in a segment of a path and in a query.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'@' | b':' | b',' | b'!' | b'*')
}

/// Encodes a text as one segment of a path, or as one value of a query. The ending `.json` of a segment is encoded,
/// because it asks for the JSON of a screen.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    let json_dot = text.ends_with(".json").then(|| text.len() - ".json".len());
    for (at, byte) in text.bytes().enumerate() {
        if is_plain(byte) && json_dot != Some(at) {
            encoded.push(char::from(byte));
        } else {
            _ = write!(encoded, "%{byte:02X}");
        }
    }
    debug_assert!(encoded.is_ascii(), "an address is ASCII");
    encoded
}

/// Decodes a segment or, with `plus`, a value of a query, in which `+` stands for a space. `None` if it is not
/// percent-encoded UTF-8, or holds a NUL.
pub(crate) fn decode(text: &str, plus: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' if plus => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// Returns the text that names the head of a thread, in quotes if its id could be read as another point or as an
/// option.
pub(crate) fn thread_text(thread: &str) -> String {
    let is_simple = !thread.starts_with(['"', '-']) && !thread.contains(['@', '~']) && !thread.contains("..");
    if is_simple && thread != "." {
        return thread.to_owned();
    }
    format!("\"{}\"", thread.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns the text that names a checkpoint for good.
pub(crate) fn point_text(at: &Snapshot) -> String {
    format!("{}@{}", thread_text(at.point().thread.as_str()), at.id())
}

/// Returns the address of the head of a thread.
pub(crate) fn thread(thread: &str) -> String {
    format!("/t/{}", encode(&thread_text(thread)))
}

/// Returns the permanent address of a checkpoint.
pub(crate) fn point(at: &Snapshot) -> String {
    format!("/t/{}", encode(&point_text(at)))
}

/// Returns the address of the difference of two points.
pub(crate) fn diff(before: &str, after: &str) -> String {
    format!("/diff/{}", encode(&format!("{before}..{after}")))
}

/// Returns the address of a part of the state at a point: a channel, and the members below it.
pub(crate) fn state<'a>(point: &str, path: impl IntoIterator<Item = &'a str>) -> String {
    let mut address = format!("{point}/state");
    for member in path {
        address.push('/');
        address.push_str(&encode(member));
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_survive_an_address() {
        for text in ["trip", "a/b c", "ü+%2F", "a.json", "<script>", "\u{202e}"] {
            assert_eq!(decode(&encode(text), true).as_deref(), Some(text));
            assert!(!encode(text).ends_with(".json") && !encode(text).contains(['/', ' ', '<', '+']), "{text}");
        }
        for wrong in ["%", "%4", "%zz", "%00", "%ff"] {
            assert_eq!(decode(wrong, false), None, "{wrong}");
        }
        assert_eq!(decode("a+b", false).as_deref(), Some("a+b"));
    }

    #[test]
    fn a_thread_that_looks_like_a_point_is_quoted() {
        assert_eq!(thread_text("trip"), "trip");
        assert_eq!(thread_text("-x"), "\"-x\"");
        assert_eq!(thread_text("me@home"), "\"me@home\"");
        assert_eq!(thread_text(".."), "\"..\"");
        assert_eq!(thread_text("\"a\\"), "\"\\\"a\\\\\"");
        assert_eq!(thread("a~b"), "/t/%22a~b%22");
    }
}
