//! HTTP requests of nodes. Invariants: the headers of a node reach the origin of its address alone; no environment
//! variable names a proxy. *Absent:* TLS; a command such as `curl` makes such a request.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use annals_graph::annals::base::{Clock, SystemClock, Value};
use ureq::http::header::{CONTENT_TYPE, LOCATION};
use ureq::http::uri::{PathAndQuery, Scheme};
use ureq::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use ureq::{Agent, Body};

use crate::limits::{ERROR_BODY_CHARS_MAX, REDIRECTS_MAX, REQUEST_LOOK, RESPONSE_BYTES_MAX};
use crate::process::shown;
use crate::spec::HttpMethod;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("{url} takes longer than the timeout of {timeout:?}")]
    TimedOut { url: String, timeout: Duration },
    #[error("the response of {url} has more than {RESPONSE_BYTES_MAX} bytes")]
    TooLong { url: String },
    #[error("the request to {url} was left, because the run was cancelled")]
    Cancelled { url: String },
    #[error("{url} has the status {status}{body}")]
    Status { url: String, status: u16, body: String },
    #[error("{url} cannot be requested: {reason}")]
    Failed { url: String, reason: String },
}

/// A request whose values are filled in.
pub(crate) struct ReadyRequest {
    pub(crate) url: String,
    pub(crate) method: HttpMethod,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<Value>,
    pub(crate) timeout: Duration,
}

/// The status and the body of a response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl HttpResponse {
    /// Refuses a status that is not one of success.
    pub(crate) fn check(&self, url: &str) -> Result<(), RequestError> {
        if (200..300).contains(&self.status) {
            return Ok(());
        }
        let body: String = String::from_utf8_lossy(&self.body).trim().chars().take(ERROR_BODY_CHARS_MAX).collect();
        Err(RequestError::Status { url: url.to_owned(), status: self.status, body: shown(&body) })
    }
}

impl ReadyRequest {
    /// Sends the request and reads the response. `is_cancelled` is asked while it waits.
    pub(crate) fn send(self, is_cancelled: &dyn Fn() -> bool) -> Result<HttpResponse, RequestError> {
        let url = self.url.clone();
        let (sender, receiver) = channel();
        // The thread ends at the timeout at the latest, also if its caller has stopped waiting.
        std::thread::spawn(move || sender.send(self.exchange()));
        loop {
            match receiver.recv_timeout(REQUEST_LOOK) {
                Ok(response) => return response,
                Err(RecvTimeoutError::Timeout) if is_cancelled() => return Err(RequestError::Cancelled { url }),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(RequestError::Failed { url, reason: "its thread has ended".into() });
                }
            }
        }
    }

    fn exchange(self) -> Result<HttpResponse, RequestError> {
        let Self { url, method, headers, body, timeout } = self;
        let failed = |error: ureq::Error| match error {
            ureq::Error::Timeout(_) => RequestError::TimedOut { url: url.clone(), timeout },
            ureq::Error::BodyExceedsLimit(_) => RequestError::TooLong { url: url.clone() },
            error => RequestError::Failed { url: url.clone(), reason: error.to_string() },
        };
        let wrong = |error: ureq::http::Error| failed(error.into());
        let mut first = Request::builder().method(method_of(method)).uri(&url);
        if let Some(kind) = body.as_ref().map(content_type)
            && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        {
            first = first.header(CONTENT_TYPE, kind);
        }
        for (name, value) in &headers {
            first = first.header(name, value);
        }
        let mut request = first.body(()).map_err(wrong)?;
        let mut bytes = body.map(|body| match body {
            Value::Str(text) => text.into_bytes(),
            body => body.to_json().to_string().into_bytes(),
        });
        let since = SystemClock.elapsed();
        for _ in 0..=REDIRECTS_MAX {
            let left = timeout.saturating_sub(SystemClock.elapsed().saturating_sub(since));
            if left.is_zero() {
                return Err(RequestError::TimedOut { url, timeout });
            }
            let agent = agent(left);
            let (parts, ()) = request.clone().into_parts();
            let response = match &bytes {
                Some(bytes) => agent.run(Request::from_parts(parts, bytes.as_slice())),
                None => agent.run(Request::from_parts(parts, ())),
            };
            let mut response = response.map_err(failed)?;
            let Some(location) = location(&response).map_err(|reason| unfollowed(&url, reason))? else {
                let status = response.status().as_u16();
                let body = response.body_mut().with_config().limit(RESPONSE_BYTES_MAX as u64);
                let body = body.read_to_vec().map_err(failed)?;
                debug_assert!(body.len() <= RESPONSE_BYTES_MAX, "the body is limited");
                return Ok(HttpResponse { status, body });
            };
            redirect(&mut request, response.status(), &location).map_err(|reason| unfollowed(&url, reason))?;
            if matches!(*request.method(), Method::GET | Method::HEAD) {
                bytes = None;
            }
        }
        Err(unfollowed(&url, format!("there are more than {REDIRECTS_MAX} redirects")))
    }
}

/// Returns the client of one exchange. Redirects are those of this module.
fn agent(timeout: Duration) -> Agent {
    let config = Agent::config_builder().timeout_global(Some(timeout)).http_status_as_error(false).max_redirects(0);
    config.proxy(None).user_agent(concat!("annals/", env!("CARGO_PKG_VERSION"))).build().into()
}

fn unfollowed(url: &str, reason: String) -> RequestError {
    RequestError::Failed { url: url.to_owned(), reason }
}

/// Returns the address of a redirect; `None` if the response is none.
fn location(response: &Response<Body>) -> Result<Option<String>, String> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(value) = response.headers().get(LOCATION).filter(|_| is_redirect) else { return Ok(None) };
    let text = value.to_str().map_err(|_| "the address of a redirect is not ASCII".to_owned())?;
    Ok(Some(text.to_owned()))
}

/// Changes a request into the one that a redirect asks for, as browsers do: 301, 302 and 303 ask for `GET`.
/// For another origin it has no header of the node, and has none after that.
fn redirect(request: &mut Request<()>, status: StatusCode, location: &str) -> Result<(), String> {
    let target =
        resolve(request.uri(), location).ok_or_else(|| format!("{location:?} is not an address for a redirect"))?;
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_read && matches!(status.as_u16(), 307 | 308) {
        return Err(format!("the redirect to {target} asks to send the {} again", request.method()));
    }
    if !is_read {
        *request.method_mut() = Method::GET;
        for name in BODY_HEADERS {
            request.headers_mut().remove(name);
        }
    }
    if origin(request.uri()) != origin(&target) {
        *request.headers_mut() = HeaderMap::new();
    }
    *request.uri_mut() = target;
    Ok(())
}

/// The headers that describe a body, or the write that it asks for.
const BODY_HEADERS: [&str; 7] = [
    "content-type",
    "content-length",
    "content-encoding",
    "content-language",
    "content-location",
    "transfer-encoding",
    "idempotency-key",
];

/// Returns scheme, host and port.
fn origin(uri: &Uri) -> (Option<&Scheme>, String, Option<u16>) {
    let by_default = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    (uri.scheme(), host, uri.port_u16().or(Some(by_default)))
}

/// Resolves the address of a redirect against the one of its request.
fn resolve(base: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    if location.contains("://") && location.parse::<Uri>().is_ok_and(|uri| uri.scheme().is_some()) {
        return location.parse().ok();
    }
    if location.starts_with("//") {
        return format!("{}:{location}", base.scheme_str()?).parse().ok();
    }
    let path = match location.as_bytes().first() {
        Some(b'/') => location.to_owned(),
        Some(b'?') | None => format!("{}{location}", base.path()),
        Some(_) => {
            let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{folder}/{location}")
        }
    };
    let (path, query) = path.split_once('?').map_or((path.as_str(), None), |(path, query)| (path, Some(query)));
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    if path.ends_with("/.") || path.ends_with("/..") {
        segments.push("");
    }
    let mut target = format!("/{}", segments.join("/"));
    if let Some(query) = query {
        target = format!("{target}?{query}");
    }
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(target.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

fn method_of(method: HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Head => Method::HEAD,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
    }
}

fn content_type(body: &Value) -> &'static str {
    if body.as_str().is_some() { "text/plain; charset=utf-8" } else { "application/json" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_redirect_is_resolved_against_its_request() {
        let base: Uri = "http://a.example:8080/b/c?d=1".parse().unwrap();
        for (location, expected) in [
            ("http://b.example/x", "http://b.example/x"),
            ("https://a.example:8080/x", "https://a.example:8080/x"),
            ("//b.example/x", "http://b.example/x"),
            ("/x?y=/../z#w", "http://a.example:8080/x?y=/../z"),
            ("x", "http://a.example:8080/b/x"),
            ("x?to=http://b.example/", "http://a.example:8080/b/x?to=http://b.example/"),
            ("./../../x/", "http://a.example:8080/x/"),
            ("..", "http://a.example:8080/"),
            (".", "http://a.example:8080/b/"),
            ("?e=2", "http://a.example:8080/b/c?e=2"),
            ("", "http://a.example:8080/b/c"),
        ] {
            let target = resolve(&base, location).unwrap_or_else(|| panic!("{location} has no target"));
            assert_eq!(target.to_string(), expected, "{location}");
        }
        assert!(resolve(&base, "/a b").is_none() && resolve(&base, "//").is_none());
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let is_same = |a: &str, b: &str| origin(&a.parse().unwrap()) == origin(&b.parse().unwrap());
        assert!(is_same("http://a.example/x", "http://A.example:80/y"));
        for other in ["https://a.example/x", "http://b.example/x", "http://a.example:81/x", "http://a.example.b/x"] {
            assert!(!is_same("http://a.example/x", other), "{other}");
        }
    }
}
