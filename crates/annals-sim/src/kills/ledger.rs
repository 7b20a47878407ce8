//! The ledger of the parent process: the calls that workers began, that were acknowledged to them or refused, and that
//! readers have seen.

use std::collections::{BTreeMap, BTreeSet};

use super::tally::{Author, EntityKind, SeenCalls};

/// The reports of one worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Reports {
    /// The step that it began last.
    pub(super) step: String,
    pub(super) acknowledged: u64,
    /// Complete passes of a reader.
    pub(super) passes: u64,
    pub(super) busy: Vec<LockRefusal>,
}

/// A call that was refused because of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockRefusal {
    /// The entity, or the name of the call.
    pub(super) call: String,
    pub(super) waited_ms: u64,
    /// The process that held the lock.
    pub(super) holder: Option<u32>,
    /// The calls that were acknowledged to the worker before.
    pub(super) acknowledged: u64,
}

impl Reports {
    /// Returns the refusals since an earlier state, from the first one on that names a process. Those before it may be
    /// of another lock: a line comes late if its writer or its reader stands still.
    pub(super) fn refused_by(&self, process: u32, before: &Self) -> &[LockRefusal] {
        let since = &self.busy[before.busy.len()..];
        let first = since.iter().position(|refusal| refusal.holder == Some(process));
        &since[first.unwrap_or(since.len())..]
    }
}

/// The ledger of one store.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    begun: BTreeMap<String, BTreeSet<(i64, Author)>>,
    refused: BTreeSet<(String, i64, Author)>,
    /// Calls that were acknowledged or that a reader has seen.
    proven: BTreeMap<String, BTreeMap<i64, Author>>,
    /// Threads whose deletion was begun, with whether it was acknowledged.
    pub(super) deleted: BTreeMap<String, bool>,
    pub(super) workers: BTreeMap<Author, Reports>,
    /// Problems that workers found, and lines that contradict each other.
    pub(super) problems: Vec<String>,
}

/// The verdict on an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntityVerdict {
    Good,
    /// A proven call is not there.
    Lost(String),
    /// A call is there that was never begun, or that was refused.
    Wrong(String),
}

impl Ledger {
    /// Takes a line of a worker's report.
    pub(super) fn take(&mut self, author: Author, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<i64>().ok()).unwrap_or(0);
        let reports = self.workers.entry(author).or_default();
        match (words[0], words.get(1).copied().unwrap_or_default()) {
            ("B", entity) => {
                reports.step = format!("commit to {:?}", EntityKind::of(entity)).to_lowercase();
                self.begin(author, entity, number(2));
            }
            ("A", entity) => {
                reports.acknowledged += 1;
                self.prove(entity, number(2), author);
            }
            ("F", entity) => {
                if words.get(3) == Some(&"busy") {
                    let holder = words.get(5).and_then(|holder| holder.parse().ok());
                    let (waited_ms, acknowledged) = (number(4) as u64, reports.acknowledged);
                    reports.busy.push(LockRefusal { call: entity.to_owned(), waited_ms, holder, acknowledged });
                }
                // A turn of a graph has several commits.
                if EntityKind::of(entity) != EntityKind::Walk {
                    self.refused.insert((entity.to_owned(), number(2), author));
                }
            }
            ("S", entity) => self.prove(entity, number(2), number(3) as Author),
            ("D", name) => _ = self.deleted.insert(name.to_owned(), false),
            ("d", name) => _ = self.deleted.insert(name.to_owned(), true),
            ("V", step) => step.clone_into(&mut reports.step),
            ("H", _) => reports.passes += 1,
            _ => self.problems.push(format!("process {author} in {}: {line}", reports.step)),
        }
    }

    fn begin(&mut self, author: Author, entity: &str, n: i64) {
        self.refused.remove(&(entity.to_owned(), n, author));
        self.begun.entry(entity.to_owned()).or_default().insert((n, author));
        if EntityKind::of(entity) == EntityKind::Shared {
            return;
        }
        // All others that wrote to it have ended. Lines of readers about this very call may come first.
        let proven = self.proven.get(entity);
        let last = proven.and_then(|calls| calls.iter().rev().find(|(_, by)| **by != author).map(|(n, _)| *n));
        if last.is_some_and(|last| last >= n) {
            self.problems.push(format!("process {author} begins call {n} of {entity}, and {last:?} was acknowledged"));
        }
    }

    fn prove(&mut self, entity: &str, n: i64, author: Author) {
        let known = self.proven.entry(entity.to_owned()).or_default().insert(n, author);
        if known.is_some_and(|known| known != author) {
            self.problems.push(format!("call {n} of {entity} is that of two processes, {known:?} and {author}"));
        }
    }

    /// Returns the proven calls of an entity.
    pub(super) fn proven(&self, entity: &str) -> BTreeMap<i64, Author> {
        self.proven.get(entity).cloned().unwrap_or_default()
    }

    /// Judges what an entity shows after all processes that wrote to it have ended.
    pub(super) fn judge(&self, entity: &str, seen: &SeenCalls) -> EntityVerdict {
        match self.origin(entity, seen) {
            EntityVerdict::Good => judge_proven(entity, seen, &self.proven(entity)),
            verdict => verdict,
        }
    }

    /// Judges whether all that an entity shows was begun and not refused.
    pub(super) fn origin(&self, entity: &str, seen: &SeenCalls) -> EntityVerdict {
        for (n, author) in seen.calls() {
            if !self.begun.get(entity).is_some_and(|begun| begun.contains(&(n, author))) {
                return EntityVerdict::Wrong(format!("call {n} of {entity} by {author} was never begun"));
            }
            if self.refused.contains(&(entity.to_owned(), n, author)) {
                return EntityVerdict::Wrong(format!("call {n} of {entity} by {author} was refused and is there"));
            }
        }
        EntityVerdict::Good
    }
}

/// Judges a read: it must show the calls that were proven before it.
pub(super) fn judge_proven(entity: &str, seen: &SeenCalls, proven: &BTreeMap<i64, Author>) -> EntityVerdict {
    let shown: BTreeMap<i64, Author> = seen.calls().collect();
    // An entity without a history shows its last call alone.
    for (n, author) in proven.range(seen.first..) {
        match shown.get(n) {
            Some(found) if found == author => {}
            found => return EntityVerdict::Lost(format!("call {n} of {entity} by {author}: there is {found:?}")),
        }
    }
    EntityVerdict::Good
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(lines: &[(Author, &str)]) -> Ledger {
        let mut ledger = Ledger::default();
        lines.iter().for_each(|(author, line)| ledger.take(*author, line));
        ledger
    }

    fn seen(authors: &[Author]) -> SeenCalls {
        SeenCalls { first: 1, authors: authors.to_vec() }
    }

    #[test]
    fn calls_are_judged_by_the_reports_of_their_authors() {
        let ledger = ledger(&[(1, "B own-0 1"), (1, "A own-0 1"), (1, "B own-0 2"), (2, "B own-0 2")]);
        assert_eq!(ledger.judge("own-0", &seen(&[1])), EntityVerdict::Good);
        assert_eq!(ledger.judge("own-0", &seen(&[1, 2])), EntityVerdict::Good);
        assert!(matches!(ledger.judge("own-0", &seen(&[])), EntityVerdict::Lost(_)));
        assert!(matches!(ledger.judge("own-0", &seen(&[1, 3])), EntityVerdict::Wrong(_)));
        assert!(ledger.problems.is_empty());
    }

    #[test]
    fn a_refused_call_must_not_be_there_and_a_seen_one_must() {
        let refused =
            ledger(&[(1, "B shared 1"), (1, "F shared 1 busy 300 77"), (2, "B shared 1"), (3, "S shared 1 2")]);
        assert!(matches!(refused.judge("shared", &seen(&[1])), EntityVerdict::Wrong(_)));
        assert!(matches!(refused.judge("shared", &seen(&[])), EntityVerdict::Lost(_)));
        assert_eq!(refused.judge("shared", &seen(&[2])), EntityVerdict::Good);
        let refusal = LockRefusal { call: "shared".into(), waited_ms: 300, holder: Some(77), acknowledged: 0 };
        assert_eq!(refused.workers[&1].busy, [refusal]);
    }

    #[test]
    fn the_refusals_by_a_process_begin_with_the_first_one_that_names_it() {
        let (late, named, other) = ("F own-0 2 busy 300 5", "F own-0 2 busy 300 77", "F own-0 2 busy 300 -");
        let ledger = ledger(&[(1, late), (1, "A own-0 1"), (1, named), (1, other)]);
        let of = |process| {
            let refusals = ledger.workers[&1].refused_by(process, &Reports::default());
            refusals.iter().map(|refusal| (refusal.holder, refusal.acknowledged)).collect::<Vec<_>>()
        };
        assert_eq!((of(77), of(78)), (vec![(Some(77), 1), (None, 1)], Vec::new()));
    }

    #[test]
    fn a_process_that_begins_a_proven_call_again_is_a_problem() {
        let again = ledger(&[(1, "B own-0 1"), (1, "A own-0 1"), (2, "B own-0 1")]);
        assert_eq!(again.problems.len(), 1);
        let two = ledger(&[(1, "B shared 1"), (1, "A shared 1"), (2, "B shared 1"), (2, "A shared 1")]);
        assert_eq!(two.problems.len(), 1);
        assert_eq!(ledger(&[(4, "X panic")]).problems.len(), 1);
    }

    #[test]
    fn entities_without_a_history_are_judged_by_their_last_call() {
        let ledger = ledger(&[(1, "B pair-0 1"), (1, "A pair-0 1"), (1, "B pair-0 2"), (1, "A pair-0 2")]);
        assert_eq!(ledger.judge("pair-0", &SeenCalls { first: 2, authors: vec![1] }), EntityVerdict::Good);
        assert!(matches!(ledger.judge("pair-0", &SeenCalls { first: 1, authors: vec![1] }), EntityVerdict::Lost(_)));
        assert!(matches!(ledger.judge("pair-0", &SeenCalls::default()), EntityVerdict::Lost(_)));
    }
}
