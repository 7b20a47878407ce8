//! JSON-RPC 2.0, one message a line: reading within a limit, and the shapes of responses.

use std::io::{self, BufRead};

use serde_json::{Value as Json, json};

/// A line of the input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InputLine {
    Whole(Vec<u8>),
    /// The line was longer than the limit and was passed over.
    TooLong,
}

/// Reads a line of at most so many bytes; `None` at the end of the input. A last line without its end counts.
pub(crate) fn read_line(input: &mut dyn BufRead, limit: usize) -> io::Result<Option<InputLine>> {
    let (mut line, mut is_too_long, mut is_begun) = (Vec::new(), false, false);
    loop {
        let bytes = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        if bytes.is_empty() && !is_begun {
            return Ok(None);
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        is_too_long |= line.len() + part.len() > limit;
        if !is_too_long {
            line.extend_from_slice(part);
        }
        is_begun = true;
        let (is_last, used) = (end.is_some() || bytes.is_empty(), part.len() + usize::from(end.is_some()));
        input.consume(used);
        if is_last {
            return Ok(Some(if is_too_long { InputLine::TooLong } else { InputLine::Whole(line) }));
        }
    }
}

/// An error of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RpcError {
    Parse,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
}

impl RpcError {
    fn number(self) -> i64 {
        match self {
            Self::Parse => -32_700,
            Self::InvalidRequest => -32_600,
            Self::MethodNotFound => -32_601,
            Self::InvalidParams => -32_602,
        }
    }
}

pub(crate) fn success(id: &Json, result: Json) -> Json {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

pub(crate) fn failure(id: &Json, error: RpcError, message: &str) -> Json {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": error.number(), "message": message } })
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn lines_are_read_within_the_limit_at_any_size_of_the_buffer() {
        let input = b"ab\n\nlonger\ncd\r\nlast";
        for capacity in 1..30 {
            let mut reader = BufReader::with_capacity(capacity, &input[..]);
            let mut lines = Vec::new();
            while let Some(line) = read_line(&mut reader, 4).unwrap() {
                lines.push(line);
            }
            let whole = |text: &str| InputLine::Whole(text.as_bytes().to_vec());
            assert_eq!(lines, [whole("ab"), whole(""), InputLine::TooLong, whole("cd\r"), whole("last")], "{capacity}");
        }
    }
}
