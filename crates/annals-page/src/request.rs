//! Requests and responses as plain data: no socket is needed to make or to read them.

use crate::address::{decode, encode};
use crate::failure::PageError;
use crate::limits::{BODY_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, TARGET_BYTES_MAX};
use crate::live::LiveEvents;

/// A request: method, target, headers and body.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageRequest {
    /// The method, such as `GET`.
    pub method: String,
    /// The path and the query, percent-encoded.
    pub target: String,
    /// The headers in their order. Names are lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl PageRequest {
    /// Makes a request without headers for a path with its query.
    pub fn get(target: impl Into<String>) -> Self {
        Self { method: "GET".into(), target: target.into(), headers: Vec::new(), body: Vec::new() }
    }

    /// Makes a request with the fields of a form, percent-encoded.
    pub fn post(target: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        let post = Self { method: "POST".into(), body: body.into(), ..Self::get(target) };
        post.header("content-type", "application/x-www-form-urlencoded")
    }

    /// Adds a header.
    pub fn header(mut self, name: impl AsRef<str>, value: impl Into<String>) -> Self {
        self.headers.push((name.as_ref().to_ascii_lowercase(), value.into()));
        self
    }

    /// Reads the head of a request of HTTP/1.1: the lines up to the empty line, without it. The body is empty.
    ///
    /// # Errors
    /// [`PageError::Malformed`] with the reason if the head has more than 32 KiB or 100 headers, or is not one of a
    /// request.
    ///
    /// # Example
    /// ```
    /// use annals_page::PageRequest;
    ///
    /// let request = PageRequest::read_head(b"GET /t/trip HTTP/1.1\r\nHost: 127.0.0.1:4000").unwrap();
    /// assert_eq!((request.target.as_str(), request.headers[0].0.as_str()), ("/t/trip", "host"));
    /// assert!(PageRequest::read_head(b"GET /t/trip HTTP/1.1\r\n Host: folded").is_err());
    /// ```
    pub fn read_head(head: &[u8]) -> Result<Self, PageError> {
        if head.len() > HEAD_BYTES_MAX {
            return Err(PageError::Malformed { reason: "the head is longer than 32 KiB" });
        }
        let wrong = |reason| PageError::Malformed { reason };
        let text = std::str::from_utf8(head).map_err(|_| wrong("the head is not UTF-8"))?;
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (method, target, version) = match (words.next(), words.next(), words.next(), words.next()) {
            (Some(method), Some(target), Some(version), None) => (method, target, version),
            _ => return Err(wrong("the first line is not a method, a target and a version")),
        };
        if !method.bytes().all(|byte| byte.is_ascii_uppercase()) || method.is_empty() {
            return Err(wrong("the method is not a word in capitals"));
        }
        if version != "HTTP/1.1" && version != "HTTP/1.0" {
            return Err(wrong("the version is not HTTP/1.1"));
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(wrong("the target is longer than 16 KiB"));
        }
        if !target.starts_with('/') || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("the target is not a path"));
        }
        let mut request = Self { method: method.to_owned(), ..Self::get(target) };
        for line in lines {
            let (name, value) = line.split_once(':').ok_or_else(|| wrong("a header has no colon"))?;
            let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_token) {
                return Err(wrong("the name of a header is not a token"));
            }
            if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
                return Err(wrong("a header holds a control character"));
            }
            if request.headers.len() == HEADERS_MAX {
                return Err(wrong("there are more than 100 headers"));
            }
            request = request.header(name, value.trim_matches([' ', '\t']));
        }
        debug_assert!(request.headers.len() <= HEADERS_MAX && request.body.is_empty());
        Ok(request)
    }

    /// Returns the number of bytes of the body that the headers state.
    ///
    /// # Errors
    /// [`PageError::Malformed`] if they contradict each other, state more than 1 MiB, or name a coding of the transfer.
    pub fn body_len(&self) -> Result<usize, PageError> {
        let wrong = |reason| PageError::Malformed { reason };
        if self.value_of("transfer-encoding").is_some() {
            return Err(wrong("codings of a transfer are not supported"));
        }
        let mut lengths = self.values_of("content-length");
        let Some(length) = lengths.next() else { return Ok(0) };
        if lengths.next().is_some() || length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong("the length of the body is not one number"));
        }
        match length.parse() {
            Ok(length) if length <= BODY_BYTES_MAX => Ok(length),
            _ => Err(wrong("the body is longer than 1 MiB")),
        }
    }

    pub(crate) fn values_of(&self, name: &str) -> impl Iterator<Item = &str> {
        debug_assert!(name.bytes().all(|byte| !byte.is_ascii_uppercase()), "names of headers are lower case");
        self.headers.iter().filter(move |(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn value_of(&self, name: &str) -> Option<&str> {
        self.values_of(name).next()
    }
}

/// The body of a response.
#[derive(Debug)]
#[non_exhaustive]
pub enum PageBody {
    /// The bytes.
    Bytes(Vec<u8>),
    /// Server-sent events that do not end.
    Live(Box<LiveEvents>),
}

/// A response: status, headers and body.
#[derive(Debug)]
#[non_exhaustive]
pub struct PageResponse {
    /// The status code.
    pub status: u16,
    /// The headers, without the length of the body.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: PageBody,
}

impl PageResponse {
    pub(crate) fn new(status: u16, kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        debug_assert!((200..600).contains(&status), "{status} is a final status");
        Self { status, headers: vec![("Content-Type", kind.into())], body: PageBody::Bytes(body.into()) }
    }

    pub(crate) fn redirect(to: String) -> Self {
        debug_assert!(to.starts_with('/') && !to.starts_with("//"), "a redirect stays on this server");
        let mut response = Self::new(303, "text/plain; charset=utf-8", "");
        response.headers.push(("Location", to));
        response
    }

    /// Returns the value of a header.
    pub fn value_of(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns the body as a text; that of events is empty.
    pub fn text(&self) -> String {
        match &self.body {
            PageBody::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            PageBody::Live(_) => String::new(),
        }
    }
}

/// The pairs of a query or of a form, decoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Reads pairs; `None` if one is not percent-encoded UTF-8.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name, true)?, decode(value, true)?))
        });
        pairs.collect::<Option<_>>().map(Self)
    }

    /// Returns the first value of a name that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(of, value)| of == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// Returns the pairs, encoded.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)))
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_heads_are_refused() {
        for head in [
            "",
            "GET /",
            "GET / HTTP/2",
            "get / HTTP/1.1",
            "GET http://other/ HTTP/1.1",
            "GET * HTTP/1.1",
            "GET /a b HTTP/1.1",
            "GET /\u{e4} HTTP/1.1",
            "GET / HTTP/1.1\r\nHost",
            "GET / HTTP/1.1\r\nHo st: a",
            "GET / HTTP/1.1\r\n: a",
            "GET / HTTP/1.1\r\nHost: a\nX: b",
            "GET / HTTP/1.1\r\nHost: a\r\n folded",
        ] {
            assert!(PageRequest::read_head(head.as_bytes()).is_err(), "{head:?}");
        }
        let long = format!("GET /{} HTTP/1.1", "a".repeat(40_000));
        assert!(PageRequest::read_head(long.as_bytes()).is_err());
        let many = format!("GET / HTTP/1.1{}", "\r\na: b".repeat(101));
        assert!(PageRequest::read_head(many.as_bytes()).is_err());
    }

    #[test]
    fn the_length_of_a_body_is_one_number() {
        let request = |name: &str, value: &str| PageRequest::get("/").header(name, value);
        assert_eq!(request("Content-Length", "12").body_len().unwrap(), 12);
        assert_eq!(PageRequest::get("/").body_len().unwrap(), 0);
        for (name, value) in
            [("content-length", "+1"), ("content-length", "9999999999"), ("transfer-encoding", "chunked")]
        {
            assert!(request(name, value).body_len().is_err(), "{name}: {value}");
        }
        assert!(request("content-length", "1").header("content-length", "1").body_len().is_err());
    }
}
