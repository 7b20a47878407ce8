//! Requests and responses as plain data: no socket is needed to make or to read them.

use hyper::http::request::Parts;

use crate::address::{decode, encode};
use crate::failure::PageError;
use crate::limits::{HEADERS_MAX, TARGET_BYTES_MAX};
use crate::live::LiveEvents;

/// A request: method, target, headers and body.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageRequest {
    /// The method, such as `GET`.
    pub method: String,
    /// The path and the query, percent-encoded.
    pub target: String,
    /// The headers; those with one name are in their order. Names are lower case.
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

    /// Makes a request of a head that `hyper` has read, without its body.
    pub(crate) fn read(parts: &Parts) -> Result<Self, PageError> {
        let wrong = |reason| PageError::Malformed { reason };
        let (method, target) = (parts.method.as_str(), parts.uri.path_and_query().map_or("", |target| target.as_str()));
        if !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(wrong("the method is not a word in capitals"));
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(wrong("the target is longer than 16 KiB"));
        }
        let is_path = target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic());
        if parts.uri.authority().is_some() || !is_path {
            return Err(wrong("the target is not a path"));
        }
        let mut request = Self { method: method.to_owned(), ..Self::get(target) };
        for (name, value) in &parts.headers {
            let value = std::str::from_utf8(value.as_bytes()).map_err(|_| wrong("the head is not UTF-8"))?;
            request = request.header(name, value);
        }
        debug_assert!(request.headers.len() <= HEADERS_MAX && request.body.is_empty());
        Ok(request)
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
