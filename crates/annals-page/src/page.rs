//! The pages of a store: one function from a request to a response.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use annals::store::Store;
use serde_json::Value as Json;

use crate::address::decode;
use crate::failure::{PageError, Refusal};
use crate::guard::{Admission, Guard};
use crate::html::Html;
use crate::layout;
use crate::limits::KNOWN_MAX;
use crate::live::LiveEvents;
use crate::request::{Fields, PageBody, PageRequest, PageResponse};
use crate::screens::{Screen, Shown, show};

/// The stylesheet of the pages.
pub(crate) const STYLE: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/page.js");

/// The policy of every response: nothing from elsewhere, no script and no style within a document.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The settings of [`Page`]. Default: reading only, a random token.
#[derive(Clone, Debug)]
pub struct PageOptions {
    allow_write: bool,
    name: String,
    file: Option<PathBuf>,
    address: SocketAddr,
    token: Option<String>,
}

impl PageOptions {
    /// Returns the default settings.
    pub fn new() -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { allow_write: false, name: "store".into(), file: None, address, token: None }
    }

    /// Shows forms that write: resume values, the control of runs, and forks. The store must be open for writing.
    pub fn allow_write(mut self, allow_write: bool) -> Self {
        self.allow_write = allow_write;
        self
    }

    /// Sets the name of the store, as the pages and their commands show it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the path of the file of the store: the health of the store then has the sizes and modes of its files.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Sets the address at which clients reach the pages; its port is part of the accepted hosts.
    pub fn address(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Sets the token, in place of a random one.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }
}

impl Default for PageOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The pages of a store, without a socket: a request in, a response out. It is shared by the threads of a server.
///
/// # Example
/// ```
/// use annals::prelude::*;
/// use annals_page::{Page, PageOptions, PageRequest};
///
/// # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
/// let store = Store::memory();
/// store.thread("trip")?.append("messages", [Message::human("A hotel in <Bern>")])?;
/// let page = Page::new(store, PageOptions::new().address("127.0.0.1:4000".parse()?).token("secret"))?;
///
/// let request = |target: &str| {
///     PageRequest::get(target).header("Host", "127.0.0.1:4000").header("Authorization", "Bearer secret")
/// };
/// let response = page.handle(&request("/t/trip/talk"));
/// assert_eq!(response.status, 200);
/// assert!(response.text().contains("A hotel in &lt;Bern&gt;"));
/// assert_eq!(page.handle(&PageRequest::get("/").header("Host", "127.0.0.1:4000")).status, 403);
/// # Ok(())
/// # }
/// ```
pub struct Page {
    store: Store,
    guard: Guard,
    allow_write: bool,
    name: String,
    file: Option<PathBuf>,
}

impl Page {
    /// Makes the pages of a store.
    ///
    /// # Errors
    /// [`PageError::Random`] if the operating system gives no random bytes for the tokens.
    pub fn new(store: Store, options: PageOptions) -> Result<Self, PageError> {
        let guard = Guard::new(options.address, options.token)?;
        Ok(Self { store, guard, allow_write: options.allow_write, name: options.name, file: options.file })
    }

    /// Returns the link to the first screen, with the token.
    pub fn link(&self) -> String {
        self.guard.link()
    }

    /// Answers a request. A failure is a response as well: 400 for a request that is not valid, 403 for one without the
    /// token or from another origin, 404 for a thread or a checkpoint that does not exist.
    pub fn handle(&self, request: &PageRequest) -> PageResponse {
        let wants_json = request.target.split('?').next().is_some_and(|path| path.ends_with(".json"));
        let response = self.answer(request).unwrap_or_else(|refusal| self.refused(&refusal, wants_json));
        secured(response)
    }

    /// Returns whether a request is one of a client that has the token: any other one is refused, and reads nothing.
    pub(crate) fn knows(&self, request: &PageRequest) -> bool {
        let (path, query) = parts(request);
        Fields::read(query).is_some_and(|query| self.guard.admit(request, path, &query).is_ok())
    }

    /// Refuses a request, because all places are taken.
    pub(crate) fn busy(&self) -> PageResponse {
        let message = format!("{KNOWN_MAX} connections are open, which is the maximum");
        secured(self.refused(&Refusal::new(503, "busy", message).hint("close a page that follows the store"), false))
    }

    /// Answers a request that could not be read.
    pub(crate) fn refuse(&self, error: &PageError) -> PageResponse {
        secured(self.refused(&Refusal::usage(error.to_string()), false))
    }

    pub(crate) fn allows_write(&self) -> bool {
        self.allow_write
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    pub(crate) fn form_token(&self) -> &str {
        self.guard.form_token()
    }

    fn answer(&self, request: &PageRequest) -> Result<PageResponse, Refusal> {
        let (path, query) = parts(request);
        let wrong = || Refusal::usage("the address is not percent-encoded UTF-8");
        let query = Fields::read(query).ok_or_else(wrong)?;
        if let Admission::Welcome { cookie, to } = self.guard.admit(request, path, &query)? {
            let mut response = PageResponse::redirect(to);
            response.headers.push(("Set-Cookie", cookie));
            return Ok(response);
        }
        let (path, json) = match path.strip_suffix(".json") {
            Some(path) => (path, true),
            None => (path, false),
        };
        let segments = path.split('/').skip(1).map(|segment| decode(segment, false)).collect::<Option<Vec<_>>>();
        let mut path = segments.ok_or_else(wrong)?;
        if path.last().is_some_and(String::is_empty) {
            path.pop();
        }
        let form = match request.method.as_str() {
            "GET" => None,
            "POST" => Some(self.form(request)?),
            method => return Err(Refusal::new(405, "method", format!("the method {method} is not GET, HEAD or POST"))),
        };
        match path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["page.css"] => return Ok(PageResponse::new(200, "text/css; charset=utf-8", STYLE)),
            ["page.js"] => return Ok(PageResponse::new(200, "text/javascript; charset=utf-8", SCRIPT)),
            ["live"] => return self.live(request, &query),
            _ => {}
        }
        let screen = Screen { page: self, store: &self.store, path, query, form, json };
        Ok(self.respond(show(&screen)?))
    }

    /// Returns the fields of a request that writes.
    fn form(&self, request: &PageRequest) -> Result<Fields, Refusal> {
        if !self.allow_write {
            return Err(Refusal::new(403, "read_only", "this server only reads").hint("annals serve --allow-write"));
        }
        let body = std::str::from_utf8(&request.body).ok().and_then(Fields::read);
        let form = body.ok_or_else(|| Refusal::usage("the form is not percent-encoded UTF-8"))?;
        self.guard.admit_write(request, &form)?;
        Ok(form)
    }

    fn live(&self, request: &PageRequest, query: &Fields) -> Result<PageResponse, Refusal> {
        let last = request.value_of("last-event-id").and_then(|id| id.parse().ok());
        let events = LiveEvents::new(
            &self.store,
            query.get("thread"),
            last.or_else(|| query.get("after").and_then(|text| text.parse().ok())),
        )?;
        let mut response = PageResponse::new(200, "text/event-stream", "");
        response.body = PageBody::Live(Box::new(events));
        Ok(response)
    }

    fn respond(&self, shown: Shown) -> PageResponse {
        match shown {
            Shown::Json(document) => json(200, &document),
            Shown::Text(text) => PageResponse::new(200, "text/plain; charset=utf-8", text),
            Shown::To(address) => PageResponse::redirect(address),
            Shown::Html(view) => html(200, layout::document(self, &view)),
        }
    }

    fn refused(&self, refusal: &Refusal, wants_json: bool) -> PageResponse {
        if wants_json {
            return json(refusal.status, &refusal.document());
        }
        html(refusal.status, layout::refusal(refusal))
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("name", &self.name).field("allow_write", &self.allow_write).finish_non_exhaustive()
    }
}

/// Returns the path and the query of a request.
fn parts(request: &PageRequest) -> (&str, &str) {
    request.target.split_once('?').unwrap_or((&request.target, ""))
}

fn html(status: u16, document: Html) -> PageResponse {
    PageResponse::new(status, "text/html; charset=utf-8", document.into_markup())
}

fn json(status: u16, document: &Json) -> PageResponse {
    PageResponse::new(status, "application/json; charset=utf-8", document.to_string() + "\n")
}

/// Adds the headers that every response has.
fn secured(mut response: PageResponse) -> PageResponse {
    for (name, value) in [
        ("Content-Security-Policy", POLICY),
        ("X-Content-Type-Options", "nosniff"),
        ("X-Frame-Options", "DENY"),
        // Not `no-referrer`, with which a form would not name its origin.
        ("Referrer-Policy", "same-origin"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cache-Control", "no-store"),
    ] {
        response.headers.push((name, value.to_owned()));
    }
    response
}
