//! The pager of long output on a terminal.

use std::io::{self, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

/// A program that shows lines on a terminal. It is awaited when it is dropped.
pub(crate) struct PagerProcess {
    child: Child,
    input: Option<ChildStdin>,
}

impl PagerProcess {
    /// Starts the program that `PAGER` names, else `less`. Returns nothing if it is empty or cannot be started.
    #[allow(
        clippy::disallowed_methods,
        reason = "a command line takes its look from the environment; the library does not"
    )]
    pub(crate) fn start() -> Option<Self> {
        let named = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
        let mut words = named.split_whitespace();
        let mut command = Command::new(words.next()?);
        command.args(words).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            // Colours are shown, a page that fits ends at once, and the text stays on the terminal.
            command.env("LESS", "FRX");
        }
        let mut child = command.spawn().ok()?;
        let input = child.stdin.take();
        Some(Self { child, input })
    }
}

impl Write for PagerProcess {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.input.as_mut().map_or(Err(io::ErrorKind::BrokenPipe.into()), |input| input.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.input.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for PagerProcess {
    fn drop(&mut self) {
        // The end of its input; the user ends the pager.
        self.input = None;
        _ = self.child.wait();
    }
}
