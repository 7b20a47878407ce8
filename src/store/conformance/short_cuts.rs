//! The law of short cuts: a backend answers as the reads that its answer follows from.

use super::build::*;

/// The checkpoints of a namespace to which the law is held: the newest ones.
const NEWEST: usize = 6;

/// The checkpoints of the longest thread to which it is held.
const LONGEST: u64 = 130;

/// Holds the law for the threads of a log, as a case leaves them.
pub(super) fn law(backend: &dyn Log) {
    let is_short = |id: &ThreadId| backend.thread_size(id).expect("a thread is counted").checkpoints <= LONGEST;
    let threads = backend.threads(None, 4).expect("threads are listed").into_iter();
    for thread in threads.filter(|thread| is_short(&thread.id)) {
        let at = CasePlace { backend, thread: thread.id, namespace: Namespace::root() };
        of_thread(&at);
        if backend.capabilities().prunes.is_some() {
            of_pruning(backend, &at.thread);
        }
        let namespaces = backend.namespaces(&at.thread).expect("namespaces are listed").into_iter();
        namespaces.for_each(|namespace| of_namespace(&CasePlace { namespace, ..at.clone() }));
    }
}

fn same(backend: &dyn Log, query: RecordQuery<'_>) {
    let derived = derived::records(backend, &query).map_err(|error| error.to_string());
    assert_eq!(backend.records(&query).map_err(|error| error.to_string()), derived, "{query:?}");
}

fn of_thread(CasePlace { backend, thread, .. }: &CasePlace<'_>) {
    let query = CheckpointQuery { thread: thread.clone(), namespace: None, before: None, limit: NEWEST };
    let ids: Vec<String> =
        backend.checkpoints(&query).expect("lists").iter().map(|of| of.point.checkpoint.to_string()).collect();
    let some =
        |id: &String| [id.clone(), id.replace('-', ""), id[..13].into(), id[..20].to_uppercase(), id[..9].into()];
    let wrong = ["%", "_f0e", "1f0e3dad'", "1f0e3dadx", "--"].map(str::to_owned);
    for prefix in ids.iter().step_by(7).flat_map(some).chain(wrong) {
        same(*backend, RecordQuery::Prefix { thread, prefix: &prefix, limit: 9 });
    }
}

/// Compares the places of a thread that cannot be pruned, also without some of its namespaces: of such a namespace,
/// whether it stays.
fn of_pruning(backend: &dyn Log, thread: &ThreadId) {
    let namespaces = backend.namespaces(thread).expect("namespaces are listed");
    let of_namespace = |of: &Namespace| {
        let found = backend.branches(thread, of).expect("branches are listed").into_iter();
        found.map(|branch| (branch.last.branch, of.clone())).collect::<Vec<_>>()
    };
    let branches: BTreeMap<u64, Namespace> = namespaces.iter().flat_map(of_namespace).collect();
    for without in [&[][..], &namespaces[1..], &namespaces[1..namespaces.len().min(2)]] {
        let shown = |places: Result<UnprunablePlaces, StoreError>| -> BTreeSet<(u64, u64, &Namespace)> {
            let places = places.expect("the held ones are found").into_iter();
            let show = |(branch, ordinal)| {
                let of = branches.get(&branch)?;
                Some(if without.contains(of) { (0, 0, of) } else { (branch, ordinal, of) })
            };
            places.filter_map(show).collect()
        };
        let found = shown(backend.unprunable(thread, without));
        assert_eq!(found, shown(derived::unprunable(backend, thread, without)), "{thread} without {without:?}");
    }
}

fn of_namespace(place: &CasePlace<'_>) {
    let CasePlace { backend, thread, namespace } = place;
    let of = (thread, namespace);
    let branches = backend.branches(thread, namespace).expect("branches are listed");
    assert_eq!(branches, derived::branches(*backend, of).expect("branches are derived"), "{of:?}");
    let records = backend.checkpoints(&CheckpointQuery { limit: NEWEST, ..place.query() }).expect("lists");
    let runs: BTreeSet<RunId> = records.iter().filter_map(|record| record.run).collect();
    let none = [RunId::from_bytes([7; 16]), RunId::from_key(thread, "none")];
    runs.iter().chain(&none).for_each(|run| same(*backend, RecordQuery::LastOfRun(of, run)));
    for (n, record) in records.iter().enumerate() {
        let (at, ordinal) = (&record.point, record.ordinal);
        let some = [ordinal, 0, ordinal + 1, ordinal / 2, ordinal.saturating_sub(1), u64::MAX];
        same(*backend, RecordQuery::Ordinals { at, ordinals: &some });
        of_state(place, at);
        if n == 0 {
            of_searches(place, at);
        }
    }
}

fn of_state(CasePlace { backend, .. }: &CasePlace<'_>, at: &CheckpointRef) {
    let parts = |derives: bool, query: &StateQuery<'_>| {
        seen(|found| {
            let mut visit = |part: StatePart<'_>| see(found, format!("{part:?}"));
            if derives { derived::read(*backend, at, query, &mut visit) } else { backend.read(at, query, &mut visit) }
        })
    };
    let same = |query: StateQuery<'_>| assert_eq!(parts(false, &query), parts(true, &query), "{query:?} at {at:?}");
    same(StateQuery::Record);
    same(StateQuery::Len("never"));
    for channel in backend.state(at).expect("a state is read").channels {
        let channel = &*channel.channel;
        same(StateQuery::Len(channel));
        let mut ids = BTreeMap::from([("none".into(), 1)]);
        let read = backend.items(at, channel, ItemRange::All, &mut |row| {
            let id = row.payload.index.and_then(|index| index.id);
            id.into_iter().for_each(|id| *ids.entry(id.to_owned()).or_default() += 1);
            Ok(())
        });
        read.expect("items are read");
        // Of several items with one id, any one is found.
        ids.iter().filter(|(_, count)| **count == 1).for_each(|(id, _)| same(StateQuery::Item(channel, id)));
    }
}

fn of_searches(CasePlace { backend, .. }: &CasePlace<'_>, at: &CheckpointRef) {
    let lineage = backend.ancestors(at, &(0..LONGEST).collect::<Vec<_>>()).expect("a lineage is read");
    let is_whole = lineage.iter().flatten().all(|record| !record.pruned);
    for channel in backend.state(at).expect("a state is read").channels {
        for text in ["", "1", "\u{fc}"] {
            let found = backend.search_list(at, &channel.channel, text).expect("a list is searched");
            let derived = derived::search_list(*backend, at, &channel.channel, text).expect("a list is searched");
            let [mut found, mut derived] = [found, derived].map(effects);
            // A deletion by a checkpoint that was pruned belongs to a later one, or to none.
            [&mut found, &mut derived].into_iter().for_each(|of| of.retain(|_, effect| is_whole || effect != "-"));
            assert_eq!(found, derived, "{text:?} in {:?} at {at:?}", channel.channel);
        }
    }
}

/// Returns the effects of changes of a list: of a position, each ordinal with the item that is there from then on.
fn effects(changes: Vec<StoredListChange>) -> BTreeMap<(u64, u64), String> {
    let positions: BTreeSet<u64> =
        changes.iter().filter(|of| of.op != ListChangeOp::Delete).map(|of| of.positions.start).collect();
    let (mut now, mut effects) = (BTreeMap::new(), BTreeMap::new());
    for StoredListChange { positions: range, ordinal, task, op } in changes {
        for position in positions.range(range) {
            let is_put = op != ListChangeOp::Delete;
            if now.insert(*position, is_put) == Some(true) || is_put {
                effects.insert((*position, ordinal), if is_put { format!("{task:?} {op:?}") } else { "-".into() });
            }
        }
    }
    effects
}
