//! One piece of work again and again, for a profiler (`perf record`, `strace -c`, `valgrind --tool=callgrind`).

use std::path::Path;

use annals::message::Message;
use annals::store::Synchronous;
use annals_graph::Durability;
use annals_graph::prelude::State as _;

use crate::append::{self, Chain};
use crate::leases::LEASE;
use crate::raw::Raw;
use crate::stats::timed;
use crate::supersteps::Count;
use crate::turns::{self, THREAD, Talk};
use crate::writes::AppendByHand;
use crate::{Result, agents, disk, raw_turns, runtime, workflows};

/// Turns of the conversation that the reading work finds.
const TURNS: usize = 10_000;

/// Repeats the work and says how many microseconds each time took.
pub(crate) fn run(args: Vec<String>) -> Result<()> {
    let [work, path, count] = <[String; 3]>::try_from(args).map_err(|_| crate::USAGE)?;
    let (path, count) = (Path::new(&path), count.parse::<usize>()?);
    let (us, ()) = match work.as_str() {
        "commit" => {
            let batches = Chain::new(THREAD, 1)?.take(count);
            let opened = disk::open(path, Synchronous::Normal)?;
            timed(|| Ok(batches.iter().try_for_each(|batch| opened.store.commit(batch))?))?
        }
        "by-hand" => {
            let mut raw = Raw::open(path, Synchronous::Normal, append::template_beside(path)?)?;
            let rows = raw.prepare(count);
            timed(|| rows.iter().try_for_each(|row| raw.superstep(row)))?
        }
        "append" | "undo" => {
            let thread = disk::open(path, Synchronous::Normal)?.store.thread(THREAD)?;
            let append = || Ok(thread.append("messages", [Message::ai("Bern")]).map(|_| ())?);
            let appended = timed(|| (0..count).try_for_each(|_| append()))?;
            match work.as_str() {
                "append" => appended,
                _ => timed(|| (0..count).try_for_each(|_| Ok(thread.undo().map(|_| ())?)))?,
            }
        }
        "turn" | "leased-turn" => {
            let graph = turns::graph()?;
            let graph = if work == "turn" { graph } else { graph.with_config(|run| run.lease(LEASE)) };
            let mut talk = Talk::open(path, Synchronous::Normal, Durability::Sync, 0)?;
            timed(|| (0..count).try_for_each(|_| talk.turn(&graph).map(|_| ())))?
        }
        "append-by-hand" => {
            if !path.exists() {
                turns::build(path, TURNS)?;
                disk::open(path, Synchronous::Normal)?
                    .store
                    .thread(THREAD)?
                    .append("messages", [Message::ai("Bern")])?;
            }
            let mut by_hand = AppendByHand::open(path)?;
            let appended = timed(|| (0..count).try_for_each(|_| by_hand.append()))?;
            by_hand.close()?;
            appended
        }
        "turn-by-hand" => (raw_turns::by_hand(path, count)?, ()),
        "agent-turn" | "agent-turn-by-hand" => (agents::turns(path, work == "agent-turn-by-hand", count)?, ()),
        "worker" => (workflows::work(path, &workflows::five_tasks()?, count)?, ()),
        "fan-out" => {
            let graph = runtime::fan()?;
            timed(|| (0..count).try_for_each(|_| Ok(graph.invoke((), Count::update().n(0)).map(|_| ())?)))?
        }
        "chain" => {
            let graph = runtime::chain(false)?;
            timed(|| (0..count).try_for_each(|_| Ok(graph.invoke((), Count::update().n(0)).map(|_| ())?)))?
        }
        "stream" => {
            let graph = runtime::chain(false)?;
            timed(|| (0..count).try_for_each(|_| runtime::read_stream(&graph)))?
        }
        "get-state" | "tail" | "open" => {
            if !path.exists() {
                turns::build(path, TURNS)?;
            }
            timed(|| (0..count).try_for_each(|_| read(&work, path)))?
        }
        _ => return Err(crate::USAGE.into()),
    };
    println!("{work}: {:.1} us", us / count as f64);
    Ok(())
}

/// One read by a handle of its own.
fn read(work: &str, path: &Path) -> Result<()> {
    let thread = disk::open(path, Synchronous::Normal)?.store.thread(THREAD)?;
    match work {
        "get-state" => _ = turns::graph()?.get_state(&thread)?,
        "tail" => _ = thread.head()?.ok_or("there is no head")?.tail("messages", 50)?,
        _ => {}
    }
    Ok(())
}
