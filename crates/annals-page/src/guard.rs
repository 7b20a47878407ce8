//! Decides whether a request is answered: token, host and origin.
//!
//! The token comes once in the link, and then in a cookie that other sites cannot send, or in the header
//! `Authorization`. Invariants: nothing of the store is read for a refused request; a write needs the origin of this
//! server and the token of its forms as well.

use std::net::SocketAddr;

use crate::failure::{PageError, Refusal};
use crate::request::{Fields, PageRequest};

/// Random bytes of a token.
const TOKEN_BYTES: usize = 24;

/// The secrets of a server, and the names under which it is reached.
pub(crate) struct Guard {
    token: String,
    form_token: String,
    cookie: String,
    hosts: Vec<String>,
}

/// The decision about a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is answered.
    Answer,
    /// It brought the token in its link: the client gets the cookie, and goes to the address without the token.
    Welcome { cookie: String, to: String },
}

impl Guard {
    /// Makes the guard of a server at an address; its own names for it are those of the loopback.
    pub(crate) fn new(address: SocketAddr, token: Option<String>) -> Result<Self, PageError> {
        let token = token.map_or_else(random_token, Ok)?;
        let port = address.port();
        let hosts = ["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}")).to_vec();
        Ok(Self { token, form_token: random_token()?, cookie: format!("annals-{port}"), hosts })
    }

    /// Returns the link with the token.
    pub(crate) fn link(&self) -> String {
        format!("http://{}/?token={}", self.hosts[0], self.token)
    }

    /// Returns the token of forms.
    pub(crate) fn form_token(&self) -> &str {
        &self.form_token
    }

    /// Verifies a request. `path` and `query` are the parts of its target.
    pub(crate) fn admit(&self, request: &PageRequest, path: &str, query: &Fields) -> Result<Admission, Refusal> {
        let mut hosts = request.values_of("host");
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host,
            _ => return Err(Refusal::new(400, "host", "the request does not name one host")),
        };
        if !self.hosts.iter().any(|own| own == host) {
            return Err(Refusal::new(403, "host", "the host is not the loopback address of this server"));
        }
        for origin in request.values_of("origin") {
            if origin.strip_prefix("http://") != Some(host) {
                return Err(Refusal::new(403, "origin", "the request comes from another origin"));
            }
        }
        let is_foreign = |site: &str| !matches!(site, "same-origin" | "none");
        let brings_token = request.method == "GET" && query.get("token").is_some();
        if request.values_of("sec-fetch-site").any(is_foreign) && !brings_token {
            return Err(Refusal::new(403, "origin", "the request comes from another site")
                .hint("open the link that annals serve printed"));
        }
        if let (true, Some(token)) = (brings_token, query.get("token")) {
            if !same(token, &self.token) {
                return Err(refused_token());
            }
            // Not `Secure`: the loopback is not encrypted.
            let cookie = format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie, self.token);
            return Ok(Admission::Welcome { cookie, to: own_path(path) });
        }
        let bearer = request.value_of("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let cookies = request.values_of("cookie").flat_map(|line| line.split(';'));
        let named = cookies.filter_map(|pair| pair.trim().split_once('=')).filter(|(name, _)| *name == self.cookie);
        if bearer.into_iter().chain(named.map(|(_, value)| value)).any(|token| same(token, &self.token)) {
            return Ok(Admission::Answer);
        }
        Err(refused_token())
    }

    /// Verifies a request that writes, after [`Guard::admit`].
    pub(crate) fn admit_write(&self, request: &PageRequest, form: &Fields) -> Result<(), Refusal> {
        if request.value_of("origin").is_none() {
            return Err(Refusal::new(403, "origin", "a write must name its origin"));
        }
        let kind = request.value_of("content-type").unwrap_or_default();
        if kind.split(';').next().map(str::trim) != Some("application/x-www-form-urlencoded") {
            return Err(Refusal::new(415, "form", "a write is a form"));
        }
        if !form.get("form").is_some_and(|token| same(token, &self.form_token)) {
            return Err(Refusal::new(403, "form", "the form is not one of this server")
                .hint("load the page again: the server was restarted"));
        }
        Ok(())
    }
}

fn refused_token() -> Refusal {
    Refusal::new(403, "token", "the token is absent or wrong").hint("open the link that annals serve printed")
}

/// Returns a path of this server: `//host` would be another one.
fn own_path(path: &str) -> String {
    format!("/{}", path.trim_start_matches(['/', '\\']))
}

/// Compares two texts in a time that does not depend on the place of their first difference.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |found, (a, b)| found | (a ^ b)) == 0
}

fn random_token() -> Result<String, PageError> {
    let mut bytes = [0_u8; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| PageError::Random { reason: error.to_string() })?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    debug_assert_eq!(token.len(), 2 * TOKEN_BYTES);
    Ok(token)
}
