//! The screens of `annals-page` on a large store, over a socket of the loopback address: the time from the begin of the
//! connection to the first byte of the response, and to its end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use annals::store::Synchronous;
use annals_page::{PageOptions, PageServer};

use crate::disk::{self, same};
use crate::figures::FigureReport;
use crate::scale::Growing;
use crate::stats::{median, micros};
use crate::{Bench, Result};

/// The token of the server.
pub(crate) const TOKEN: &str = "token";

/// The screens by their figures: the first byte, the whole page, the address.
const SCREENS: [(&str, &str, &str); 8] = [
    ("page_first_byte_ms_threads", "page_ms_threads", "/"),
    ("page_first_byte_ms_thread", "page_ms_thread", "/t/long"),
    ("page_first_byte_ms_talk", "page_ms_talk", "/t/long/talk"),
    ("page_first_byte_ms_state", "page_ms_state", "/t/long/state"),
    ("page_first_byte_ms_step", "page_ms_step", "/t/long~1000/step"),
    ("page_first_byte_ms_diff", "page_ms_diff", "/diff/long~10..long"),
    ("page_first_byte_ms_runs", "page_ms_runs", "/runs"),
    ("page_first_byte_ms_stats", "page_ms_stats", "/stats"),
];

/// Measures the screens of a store with 1,000,000 checkpoints, half of them in one thread.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let (long, threads, each) = if bench.quick { (2_000, 100, 20) } else { (500_000, 1_000, 500) };
    let opened = disk::open(&bench.file("pages.db")?, Synchronous::Normal)?;
    for n in 0..threads {
        Growing::new(&format!("thread {n:04}"), n + 1)?.grow(&opened, each)?;
    }
    Growing::new("long", threads + 1)?.grow(&opened, long)?;
    opened.empty_wal()?;
    let server = PageServer::bind(opened.store.clone(), 0, PageOptions::new().token(TOKEN))?;
    let address = server.address();
    // It answers until the process ends.
    std::thread::spawn(move || server.run());
    for (first_byte, whole, target) in SCREENS {
        let (mut first_times, mut whole_times) = (Vec::new(), Vec::new());
        for _ in 0..bench.runs(21, 2) {
            let (first, all) = request(address, target)?;
            first_times.push(first);
            whole_times.push(all);
        }
        report.set(first_byte, median(&first_times));
        report.set(whole, median(&whole_times));
    }
    Ok(())
}

/// Sends a request on a connection of its own, as a browser does to this server. Returns the milliseconds to the first
/// byte of the response and to its end.
pub(crate) fn request(address: SocketAddr, target: &str) -> Result<(f64, f64)> {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let head = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut response = vec![0];
    stream.read_exact(&mut response)?;
    let first = micros(start.elapsed());
    stream.read_to_end(&mut response)?;
    let whole = micros(start.elapsed());
    same(target, response.starts_with(b"HTTP/1.1 200 ") && response.ends_with(b"</html>\n"), true)?;
    Ok((first / 1_000.0, whole / 1_000.0))
}
