//! `annals serve`: pages of the store for a browser of this machine, until the command is ended.
//!
//! JSON: `{"schema": 1, "url", "store", "writes": bool}`, before the first request is answered. The link carries the
//! token.

use std::process::{Command, Stdio};

use annals::store::Store;
use annals_page::{PageOptions, PageServer};
use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::output::{self, Printer};
use crate::{point, server};

pub(crate) fn run(args: &args::ServeArgs, store: NamedStore<'_>, out: &mut Printer) -> Result<u8, CommandFailure> {
    let named = args.path.as_deref().map_or(store, |path| store.at(path));
    let path = point::named(named)?;
    let name = server::shown(path);
    let store: Store = if args.allow_write { point::open_to_write(named)? } else { point::open_to_read(named)? };
    let options = PageOptions::new().allow_write(args.allow_write).name(&name);
    let options = if server::url(path).is_none() { options.file(path) } else { options };
    let server = PageServer::bind(store, args.port, options)?;
    let link = server.link();
    if out.is_json() {
        out.json_line(&json!({ "schema": 1, "url": link, "store": name, "writes": args.allow_write }))?;
    } else {
        out.line(&link)?;
    }
    out.flush()?;
    if args.open && !open(&link) {
        output::note("no program that opens links was found; open the link by hand");
    }
    server.run()?;
    Ok(0)
}

/// Opens a link in the browser; returns whether a program for it was started.
fn open(link: &str) -> bool {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else if cfg!(windows) {
        "explorer"
    } else {
        "xdg-open"
    };
    Command::new(program).arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().is_ok()
}
