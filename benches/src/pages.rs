//! The screens of `annals-page` on a large store: the time from a request to its whole response, without a socket.

use annals::store::Synchronous;
use annals_page::{Page, PageOptions, PageRequest};

use crate::disk::{self, same};
use crate::figures::FigureReport;
use crate::scale::Growing;
use crate::stats::{median, timed};
use crate::{Bench, Result};

const HOST: &str = "127.0.0.1:4000";
const TOKEN: &str = "token";

/// The screens by their figures.
const SCREENS: [(&str, &str); 8] = [
    ("page_ms_threads", "/"),
    ("page_ms_thread", "/t/long"),
    ("page_ms_talk", "/t/long/talk"),
    ("page_ms_state", "/t/long/state"),
    ("page_ms_step", "/t/long~1000/step"),
    ("page_ms_diff", "/diff/long~10..long"),
    ("page_ms_runs", "/runs"),
    ("page_ms_stats", "/stats"),
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
    let page = Page::new(opened.store.clone(), PageOptions::new().address(HOST.parse()?).token(TOKEN))?;
    for (figure, target) in SCREENS {
        let request = PageRequest::get(target).header("host", HOST).header("authorization", format!("Bearer {TOKEN}"));
        let mut times = Vec::new();
        for _ in 0..bench.runs(21, 2) {
            let (us, response) = timed(|| Ok(page.handle(&request)))?;
            same(target, response.status, 200)?;
            times.push(us / 1_000.0);
        }
        report.set(figure, median(&times));
    }
    Ok(())
}
