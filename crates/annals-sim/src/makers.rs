//! Processes that make one new file at once: each opens it and stores a thread. None of them may fail, and every thread
//! has to be there.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use annals::store::{OpenOptions, Store};

use crate::trace::ScratchFolder;

/// The plan of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MakersPlan {
    pub(crate) processes: u64,
    pub(crate) rounds: u64,
    /// The wait of each process for the others, in milliseconds.
    pub(crate) wait_ms: u64,
}

/// The results of all rounds.
#[derive(Debug, Default)]
pub(crate) struct MakersCounts {
    /// Processes that opened the file, or tried to.
    pub(crate) run: u64,
    /// Those that failed.
    pub(crate) errors: u64,
    /// Threads of others that are not there afterwards.
    pub(crate) lost: u64,
    /// Problems that the checks found.
    pub(crate) problems: u64,
    /// The first errors.
    pub(crate) failures: Vec<String>,
}

impl MakersCounts {
    fn fail(&mut self, reason: String) {
        const SHOWN: usize = 8;
        if self.failures.len() < SHOWN {
            self.failures.push(reason);
        }
    }
}

/// Runs the rounds, each with a file of its own.
pub(crate) fn run(plan: MakersPlan) -> Result<MakersCounts, String> {
    let mut counts = MakersCounts::default();
    for _ in 0..plan.rounds {
        let scratch = ScratchFolder::new().map_err(|error| error.to_string())?;
        round(plan, &scratch.store(), &mut counts)?;
    }
    Ok(counts)
}

fn round(plan: MakersPlan, path: &Path, counts: &mut MakersCounts) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let start = |number: u64| -> Result<Child, String> {
        Command::new(std::env::current_exe().map_err(text)?)
            .arg("maker")
            .arg(path)
            .args([number.to_string(), plan.wait_ms.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(text)
    };
    let mut makers = (0..plan.processes).map(start).collect::<Result<Vec<_>, _>>()?;
    let mut outputs = Vec::new();
    for maker in &mut makers {
        let mut output = BufReader::new(maker.stdout.take().ok_or("a maker has no output")?);
        let mut line = String::new();
        output.read_line(&mut line).map_err(text)?;
        outputs.push(output);
    }
    // All of them have started: they begin at once.
    for maker in &mut makers {
        let mut input = maker.stdin.take().ok_or("a maker has no input")?;
        input.write_all(b"begin\n").map_err(text)?;
    }
    let mut stored = Vec::new();
    for (number, (maker, output)) in makers.iter_mut().zip(outputs).enumerate() {
        counts.run += 1;
        let mut lines = output.lines();
        let said = lines.next().transpose().map_err(text)?.unwrap_or_else(|| "it has said nothing".into());
        let ended = maker.wait().map_err(text)?;
        match said == "stored" && ended.success() {
            true => stored.push(number),
            false => {
                counts.errors += 1;
                counts.fail(format!("process {number}: {said}"));
            }
        }
    }
    if stored.is_empty() {
        return Ok(());
    }
    let opened = Store::open(path).and_then(|store| Ok((store.threads()?, store.check()?)));
    let (threads, report) = opened.map_err(|error| format!("the file cannot be read afterwards: {error}"))?;
    for number in stored {
        if !threads.iter().any(|thread| thread.id.as_str() == thread_of(number as u64)) {
            counts.lost += 1;
            counts.fail(format!("process {number}: its thread is not there"));
        }
    }
    counts.problems += report.problems.len() as u64;
    report.problems.iter().for_each(|problem| counts.fail(problem.to_string()));
    Ok(())
}

fn thread_of(number: u64) -> String {
    format!("maker {number}")
}

/// Runs one process: it says that it has started, waits for the others, opens the file and stores its thread. Returns
/// the line that tells its outcome.
pub(crate) fn work(words: &[String], say: impl Fn(&str)) -> Result<String, String> {
    let [path, number, wait_ms] = words else { return Err("a maker needs a path, its number and its wait".into()) };
    let number = number.parse().map_err(|_| format!("{number} is not a number"))?;
    let wait_ms = wait_ms.parse().map_err(|_| format!("{wait_ms} is not a number"))?;
    say("started");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|error| error.to_string())?;
    let store = || -> annals::Result<()> {
        let store = Store::open_with(path, OpenOptions::new().busy_timeout_ms(wait_ms))?;
        store.thread(thread_of(number))?.write().set("number", number as i64).commit()?;
        Ok(())
    };
    Ok(match store() {
        Ok(()) => "stored".into(),
        Err(error) => format!("{}: {error}", error.code().unwrap_or("none")).replace('\n', " "),
    })
}
