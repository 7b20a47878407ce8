//! `annals stats`: the sizes of the store and of its write-ahead log.
//!
//! JSON: `{"schema": 1, "format", "page_bytes", "file_bytes", "wal_bytes", "wal_frames", "wal_copied_frames",
//! "wal_limit_bytes", "wal_is_large", "erasing"}`. The numbers of frames are 0 if the folder of the store cannot be
//! written.

use serde_json::json;

use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::output::{Printer, columns, count, grouped, size};
use crate::point;

pub(crate) fn run(named: NamedStore<'_>, out: &mut Printer) -> Result<u8, CommandFailure> {
    _ = point::file(named, "annals stats without --by measures", "stats --by sums the history of any store")?;
    let stats = point::open_to_read(named)?.stats()?;
    if out.is_json() {
        out.json(&json!({
            "schema": 1,
            "format": stats.format,
            "page_bytes": stats.page_bytes,
            "file_bytes": stats.file_bytes,
            "wal_bytes": stats.wal_bytes,
            "wal_frames": stats.wal_frames,
            "wal_copied_frames": stats.wal_copied_frames,
            "wal_limit_bytes": stats.wal_limit_bytes,
            "wal_is_large": stats.is_wal_large(),
            "erasing": stats.erasing,
        }))?;
        return Ok(0);
    }
    let (frames, copied) = (grouped(stats.wal_frames), grouped(stats.wal_copied_frames));
    let rows = [
        ["file", &size(stats.file_bytes)],
        ["format", &stats.format.to_string()],
        ["page", &size(stats.page_bytes)],
        ["write-ahead log", &format!("{}, {copied} of {frames} frames copied", size(stats.wal_bytes))],
        ["limit of the log", &size(stats.wal_limit_bytes)],
    ];
    for line in columns(&rows.map(|row| row.map(str::to_owned).to_vec())) {
        out.line(line)?;
    }
    if stats.is_wal_large() {
        out.line("the log is past half of its limit: a reader keeps it from being copied")?;
    }
    if stats.erasing > 0 {
        let threads = count(stats.erasing as usize, "deleted thread");
        out.line(format!("bytes of {threads} are still stored; a program that opens the store erases them"))?;
    }
    Ok(0)
}
