//! Recoveries of a store that was damaged in each of many ways: the share of its messages that come back, beside the
//! share that a scan of its leaves could give.
//!
//! A message could come back if the row that holds it is whole, wherever it lies. So could one whose damage can be
//! undone, and then the share is 1 all the same. *Absent:* damage below the store while it is open, which the other
//! commands cause.

mod content;
mod damage;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals::rusqlite::Connection;
use annals::store::Store;
use serde_json::{Value, json};

use crate::trace::{ScratchFolder, remove_store};
use content::MessageStore;
use damage::Damage;

/// The least mean of the shares.
const RATIO_MIN: f64 = 0.95;
/// Failures that are described.
const FAILURES_MAX: usize = 32;

/// The extent of a run.
pub(crate) struct RecoverPlan {
    pub(crate) seed: u64,
    pub(crate) rounds: u64,
    pub(crate) stride: usize,
    pub(crate) share: usize,
    pub(crate) jobs: usize,
}

/// The result of one recovery.
struct RecoverCase {
    kind: String,
    /// The messages that came back, those of them in the threads that they were in, and those that could.
    came: usize,
    verified: usize,
    could: usize,
    /// True if the report says that nothing was lost.
    is_complete: bool,
    is_silent: bool,
    failure: Option<String>,
}

impl RecoverCase {
    /// Returns the share of the messages that could come back; `None` if none could.
    fn ratio(&self, came: usize) -> Option<f64> {
        (self.could > 0).then(|| (came as f64 / self.could as f64).min(1.0))
    }
}

/// Damages a store in each way, and recovers it. Returns the figures, and whether they are as they must be.
pub(crate) fn run(plan: &RecoverPlan) -> Result<(Value, bool), String> {
    let store = MessageStore::make(plan.seed)?;
    let all = store.file.damages(plan.seed, plan.rounds, plan.stride.max(1));
    let damages: Vec<Damage> = all.into_iter().step_by(plan.share.max(1)).collect();
    let (next, cases) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let work = || -> Result<(), String> {
            let scratch = ScratchFolder::new().map_err(|error| error.to_string())?;
            while let Some(damage) = damages.get(next.fetch_add(1, Ordering::SeqCst)) {
                let case = recover(&store, damage, scratch.path())?;
                cases.lock().map_err(|error| error.to_string())?.push(case);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..plan.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("the harness panicked".into())))
    })?;
    let cases = cases.into_inner().map_err(|error| error.to_string())?;
    Ok(judge(plan, &store, &cases))
}

/// Returns the mean of the shares, given how many messages came back in each case.
fn mean(cases: &[RecoverCase], came: impl Fn(&RecoverCase) -> usize) -> f64 {
    let ratios: Vec<f64> = cases.iter().filter_map(|case| case.ratio(came(case))).collect();
    ratios.iter().sum::<f64>() / ratios.len().max(1) as f64
}

/// Returns the cases in which a report that says so lies: messages are missing.
fn lies(store: &MessageStore, cases: &[RecoverCase], says: impl Fn(&RecoverCase) -> bool) -> usize {
    cases.iter().filter(|case| !case.is_silent && says(case) && case.came < store.messages.len()).count()
}

fn judge(plan: &RecoverPlan, store: &MessageStore, cases: &[RecoverCase]) -> (Value, bool) {
    let worst = |cases: &mut dyn Iterator<Item = &RecoverCase>| {
        cases.filter_map(|case| case.ratio(case.came)).fold(1.0_f64, f64::min)
    };
    let ratio = mean(cases, |case| case.came);
    let is_of_page = |case: &&RecoverCase| case.kind == "a page" || case.kind.starts_with("root of ");
    let worst_page = worst(&mut cases.iter().filter(is_of_page));
    let lied = lies(store, cases, |case| case.is_complete);
    let mut kinds: BTreeMap<&str, Vec<&RecoverCase>> = BTreeMap::new();
    cases.iter().for_each(|case| kinds.entry(&case.kind).or_default().push(case));
    let of_kind = |cases: &Vec<&RecoverCase>| {
        let sum = |count: fn(&RecoverCase) -> usize| cases.iter().map(|case| count(case)).sum::<usize>();
        json!({
            "runs": cases.len(),
            "came": sum(|case| case.came),
            "verified": sum(|case| case.verified),
            "could": sum(|case| case.could),
            "worst": worst(&mut cases.iter().copied()),
            "complete": cases.iter().filter(|case| case.is_complete).count(),
        })
    };
    // The controls: a recovery that salvages nothing, and one that says each time that nothing was lost.
    let without_salvage = mean(cases, |case| case.verified);
    let controls = [without_salvage < RATIO_MIN, lies(store, cases, |_| true) > 0];
    let found = controls.into_iter().filter(|found| *found).count();
    let failures: Vec<&String> = cases.iter().filter_map(|case| case.failure.as_ref()).take(FAILURES_MAX).collect();
    let good = failures.is_empty() && ratio >= RATIO_MIN && worst_page > 0.0 && lied == 0 && found == controls.len();
    let result = json!({
        "recover_run": cases.len(),
        "recover_kinds": kinds.len(),
        "recover_ratio": ratio,
        "recover_ratio_worst_page": worst_page,
        "recover_ratio_verified": without_salvage,
        "recover_lied": lied,
        "controls_run": controls.len(),
        "controls_found": found,
        "messages": store.messages.len(),
        "file_bytes": store.file.bytes.len(),
        "stride": plan.stride,
        "seed": plan.seed,
        "kinds": kinds.iter().map(|(kind, cases)| ((*kind).to_owned(), of_kind(cases))).collect::<BTreeMap<_, _>>(),
        "failures": failures,
    });
    (result, good)
}

/// Recovers a damaged file, and counts the messages that came back.
fn recover(store: &MessageStore, damage: &Damage, folder: &Path) -> Result<RecoverCase, String> {
    let (from, to) = (folder.join("damaged.db"), folder.join("recovered.db"));
    [&from, &to].into_iter().for_each(|path| remove_store(path));
    let text = |error: std::io::Error| error.to_string();
    std::fs::write(&from, damage.file.bytes()).map_err(text)?;
    if let Some(log) = &damage.log {
        std::fs::write(folder.join("damaged.db-wal"), log).map_err(text)?;
    }
    let is_silent = damage.is_silent;
    let could = if damage.log.is_some() { store.messages.len() } else { store.could_come_back(&damage.file) };
    let could = if is_silent { store.behind } else { could };
    let mut case = RecoverCase {
        kind: damage.kind.clone(),
        came: 0,
        verified: 0,
        could,
        is_complete: false,
        is_silent,
        failure: None,
    };
    let failed = |what: String| Some(format!("{}: {what}", damage.kind));
    match catch_unwind(AssertUnwindSafe(|| Store::recover(&from, &to))) {
        Err(_) => case.failure = failed("the recovery panicked".into()),
        Ok(Err(error)) => case.failure = failed(error.to_string()).filter(|_| could > 0),
        Ok(Ok(report)) => {
            case.is_complete = report.is_complete();
            let (all, own) = messages(&to).map_err(|error| format!("{}: {error}", damage.kind))?;
            let is_known = |text: &&String| store.messages.contains(*text);
            case.came = all.iter().filter(is_known).count();
            case.verified = own.iter().filter(is_known).count();
            if all.len() > case.came {
                case.failure = failed(format!("{} messages were never written", all.len() - case.came));
            }
        }
    }
    if std::fs::read(&from).map_err(text)? != damage.file.bytes() {
        case.failure = failed("the damaged file was changed".into());
    }
    Ok(case)
}

/// Returns the texts of the messages of a store, and of those in threads that were not salvaged.
fn messages(path: &Path) -> annals::rusqlite::Result<(BTreeSet<String>, BTreeSet<String>)> {
    let conn = Connection::open(path)?;
    let mut statement = conn.prepare("SELECT thread, text FROM v_messages")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let (mut all, mut own) = (BTreeSet::new(), BTreeSet::new());
    for row in rows {
        let (thread, text) = row?;
        if !thread.contains("(salvaged") {
            own.insert(text.clone());
        }
        all.insert(text);
    }
    Ok((all, own))
}
