//! `annals mcp`: a server of the Model Context Protocol on stdin and stdout, until stdin ends.

use std::io;

use annals_mcp::{McpOptions, McpServer};

use crate::args;
use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::point;

pub(crate) fn run(args: &args::McpArgs, store: NamedStore<'_>) -> Result<u8, CommandFailure> {
    let named = args.path.as_deref().map_or(store, |path| store.at(path));
    let store = if args.allow_write { point::open_to_write(named)? } else { point::open_to_read(named)? };
    let server = McpServer::new(store, McpOptions::new().allow_write(args.allow_write));
    match server.run(io::stdin().lock(), io::stdout().lock()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(CommandFailure::Closed),
        Err(error) => Err(CommandFailure::new(70, "io", error.to_string())),
        Ok(()) => Ok(0),
    }
}
