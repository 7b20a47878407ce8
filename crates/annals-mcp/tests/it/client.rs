//! A server on a thread of its own, and a client of the SDK.

use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

use annals::prelude::*;
use annals_mcp::{McpOptions, McpServer};
use rmcp::ServiceExt as _;
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::{RoleClient, RunningService, ServiceError};
use serde_json::Value as Json;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::runtime::Runtime;

/// A client with its server. Its calls block.
pub(crate) struct PipedClient {
    runtime: Runtime,
    service: RunningService<RoleClient, ()>,
    server: JoinHandle<io::Result<()>>,
}

impl PipedClient {
    pub(crate) fn start(store: &Store, options: McpOptions) -> Self {
        let (requests, to_server) = io::pipe().unwrap();
        let (from_server, responses) = io::pipe().unwrap();
        let server = McpServer::new(store.clone(), options);
        let server = std::thread::spawn(move || server.run(BufReader::new(requests), responses));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let service = runtime.block_on(async {
            let input = Receiver::from_owned_fd(OwnedFd::from(from_server)).unwrap();
            let output = Sender::from_owned_fd(OwnedFd::from(to_server)).unwrap();
            ().serve((input, output)).await.unwrap()
        });
        Self { runtime, service, server }
    }

    /// Returns the names of the tools.
    pub(crate) fn tools(&self) -> Vec<rmcp::model::Tool> {
        self.runtime.block_on(self.service.list_all_tools()).unwrap()
    }

    pub(crate) fn instructions(&self) -> String {
        self.service.peer_info().unwrap().instructions.clone().unwrap()
    }

    pub(crate) fn try_call(&self, name: &str, arguments: Json) -> Result<CallToolResult, ServiceError> {
        let request = CallToolRequestParams::new(name.to_owned());
        let request = request.with_arguments(arguments.as_object().unwrap().clone());
        self.runtime.block_on(self.service.call_tool(request))
    }

    /// Returns the text of a reply.
    pub(crate) fn call(&self, name: &str, arguments: Json) -> String {
        let result = self.try_call(name, arguments).unwrap();
        assert_eq!(result.is_error, Some(false), "{name}: {result:?}");
        text(&result)
    }

    /// Returns the text and the document of the error of a tool.
    pub(crate) fn refusal(&self, name: &str, arguments: Json) -> Json {
        let result = self.try_call(name, arguments).unwrap();
        assert_eq!(result.is_error, Some(true), "{name}: {result:?}");
        let error = result.structured_content.clone().unwrap();
        assert!(text(&result).contains(error["message"].as_str().unwrap()), "{result:?}");
        error
    }

    /// Closes the pipes: the server ends.
    pub(crate) fn end(self) {
        self.runtime.block_on(self.service.cancel()).unwrap();
        drop(self.runtime);
        self.server.join().unwrap().unwrap();
    }
}

fn text(result: &CallToolResult) -> String {
    assert_eq!(result.content.len(), 1);
    result.content[0].as_text().unwrap().text.clone()
}
