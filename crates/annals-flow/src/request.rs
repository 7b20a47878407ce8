//! HTTP requests of nodes. *Absent:* TLS; a command such as `curl` makes such a request.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use annals_graph::annals::base::Value;
use ureq::Agent;
use ureq::http::Request;

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
        let agent: Agent = Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .max_redirects(REDIRECTS_MAX)
            .user_agent(concat!("annals/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let mut request = Request::builder().method(word(method)).uri(&url);
        if let Some(kind) = body.as_ref().map(content_type)
            && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        {
            request = request.header("Content-Type", kind);
        }
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        let bytes = body.map(|body| match body {
            Value::Str(text) => text.into_bytes(),
            body => body.to_json().to_string().into_bytes(),
        });
        let response = match bytes {
            Some(bytes) => agent.run(request.body(bytes).map_err(|error| failed(error.into()))?),
            None => agent.run(request.body(()).map_err(|error| failed(error.into()))?),
        };
        let mut response = response.map_err(failed)?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(RESPONSE_BYTES_MAX as u64).read_to_vec().map_err(failed)?;
        debug_assert!(body.len() <= RESPONSE_BYTES_MAX, "the body is limited");
        Ok(HttpResponse { status, body })
    }
}

fn word(method: HttpMethod) -> &'static str {
    match method {
        HttpMethod::Get => "GET",
        HttpMethod::Head => "HEAD",
        HttpMethod::Post => "POST",
        HttpMethod::Put => "PUT",
        HttpMethod::Patch => "PATCH",
        HttpMethod::Delete => "DELETE",
    }
}

fn content_type(body: &Value) -> &'static str {
    if body.as_str().is_some() { "text/plain; charset=utf-8" } else { "application/json" }
}
