//! A proxy in front of a server, which moves to another one.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::server::{SOCKET, Server};

/// Where connections go, and those that are open.
struct Upstream {
    socket: PathBuf,
    open: Vec<UnixStream>,
}

/// A socket whose connections go to a server.
pub(crate) struct FailoverProxy {
    folder: tempfile::TempDir,
    upstream: Arc<Mutex<Upstream>>,
}

impl FailoverProxy {
    pub(crate) fn start(socket: PathBuf) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join(SOCKET)).expect("a socket");
        let upstream = Arc::new(Mutex::new(Upstream { socket, open: Vec::new() }));
        let of = Arc::clone(&upstream);
        // It ends with the process.
        std::thread::spawn(move || listener.incoming().flatten().for_each(|client| forward(client, &of)));
        Self { folder, upstream }
    }

    /// Returns the URL of a server by way of the proxy.
    pub(crate) fn url(&self, of: &Server) -> String {
        let own = of.socket().expect("it was started");
        let own = own.parent().expect("a folder").display().to_string();
        of.empty().replace(&own, &self.folder.path().display().to_string())
    }

    /// Ends all connections, and sends new ones to another server.
    pub(crate) fn move_to(&self, socket: PathBuf) {
        let mut upstream = self.upstream.lock().expect("no thread panics");
        upstream.socket = socket;
        upstream.open.drain(..).for_each(|stream| _ = stream.shutdown(Shutdown::Both));
    }
}

fn forward(client: UnixStream, upstream: &Mutex<Upstream>) {
    let mut upstream = upstream.lock().expect("no thread panics");
    // A server that is not there ends the connection.
    let Ok(server) = UnixStream::connect(&upstream.socket) else { return };
    for (from, to) in [(&client, &server), (&server, &client)] {
        let (mut from, mut to) = (from.try_clone().expect("a handle"), to.try_clone().expect("a handle"));
        std::thread::spawn(move || {
            _ = std::io::copy(&mut from, &mut to);
            _ = to.flush();
            _ = to.shutdown(Shutdown::Both);
            _ = from.shutdown(Shutdown::Both);
        });
    }
    upstream.open.extend([client, server]);
}
