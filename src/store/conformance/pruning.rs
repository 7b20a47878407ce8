//! Pruning: the state of every kept checkpoint stays as it was.

use super::build::*;
use crate::base::limits::MAP_POSITION_MIN;

/// All that a checkpoint shows: its state, its lists, and the writes of its tasks.
type ShownState = (StateRecord, Vec<(u64, u64, Option<u32>, Payload)>, Vec<WriteRecord>);

fn shown(backend: &dyn Log, place: &CasePlace<'_>, n: u64) -> ShownState {
    let at = place.point(n);
    let state = backend.state(&at).expect("reads a state");
    let mut rows = Vec::new();
    for channel in state.channels.iter().filter(|channel| channel.value == ChannelValue::Items) {
        let before = rows.len() as u64;
        let visited = backend.items(&at, &channel.channel, ItemRange::All, &mut |row| {
            rows.push((row.position, row.ordinal, row.task, row.payload.to_payload()));
            Ok(())
        });
        visited.expect("reads items");
        let len = backend.list_len(&at, &channel.channel).expect("reads a length");
        assert_eq!(rows.len() as u64 - before, len, "the length of a list is that of its items");
        let tail = items(backend, &at, &channel.channel, ItemRange::Tail(3));
        let last = rows[before as usize..].iter().rev().take(3).rev();
        assert!(tail.iter().map(|(at, ..)| *at).eq(last.map(|(at, ..)| *at)), "the tail is the end of the list");
    }
    (state, rows, backend.writes(&at).expect("reads writes"))
}

/// Prunes the checkpoints of a place from one number to another, which are beside one another on one branch.
fn prune(backend: &dyn Log, place: &CasePlace<'_>, first: u64, last: u64) -> Pruned {
    let (first, last) = (place.record(first), place.record(last));
    assert_eq!(first.branch, last.branch, "a span lies on one branch");
    let span = PruneSpan::new(first.branch, first.ordinal, last.ordinal);
    backend.prune(&place.thread, &[span]).expect("checkpoints are pruned")
}

/// Prunes, and compares what every kept checkpoint shows before and after.
fn lawful(backend: &dyn Log, place: &CasePlace<'_>, all: &[u64], (first, last): (u64, u64)) -> Pruned {
    let kept = |n: &&u64| !place.record(**n).pruned;
    let before: Vec<(u64, ShownState)> = all.iter().filter(kept).map(|n| (*n, shown(backend, place, *n))).collect();
    let pruned = prune(backend, place, first, last);
    for (n, before) in before {
        if !place.record(n).pruned {
            assert_eq!(shown(backend, place, n), before, "checkpoint {n} shows something else");
        } else {
            assert!((first..=last).contains(&n), "checkpoint {n} was not to be pruned");
            let state = backend.state(&place.point(n));
            assert!(matches!(state, Err(StoreError::CheckpointPruned { id: of, .. }) if of == id(n)), "{state:?}");
        }
    }
    clean(backend);
    pruned
}

/// Adds a linear history with values, lists, a map, deletes, writes and consumed writes.
fn fill(backend: &dyn Log, place: &CasePlace<'_>, numbers: std::ops::RangeInclusive<u64>) {
    let first = *numbers.start();
    for n in numbers {
        let draft = if n == first { begin(n) } else { on(n, n - 1) };
        let at = n - first;
        let mut draft = draft.tasks(&["node"]).value("x", at + 1, format!("value number {at}, not inline at all"));
        if at.is_multiple_of(10) {
            draft = draft.value("rare", at + 1, "rare ".repeat(400) + &at.to_string());
        }
        let mut items = vec![put_payload(at, message(&format!("id-{at}"), &format!("the text number {at}")))];
        if at > 3 && at.is_multiple_of(3) {
            items.push(put_payload(at - 3, message(&format!("id-{at}"), "an edited text")));
        }
        if at > 3 && at.is_multiple_of(5) {
            items.push(remove(at - 2));
        }
        if at % 17 == 16 {
            items.insert(0, delete_range(at - 9, at - 6));
        }
        let entry = MAP_POSITION_MIN + at % 7 * 1_000;
        draft = draft.items("list", at + 1, items).items("map", at + 1, vec![put(entry, format!("entry {at}"))]);
        if n > first {
            let of_task = vec![write(0, "x", format!("written at {at}")), write_items(1, "list", &["one", "two"])];
            draft = draft.consumed(writes(n - 1, task(1), "p", of_task)).value_of("taken", at + 1, task(1), 0);
            draft = draft.items("parts", at + 1, vec![put_of(at, task(1), 1, 0)]).seen("node", &[("x", at)]);
        }
        if at % 23 == 22 {
            draft = draft.items("short", at + 1, vec![delete_range(0, u64::MAX), put(0, format!("only {at}"))]);
        } else {
            draft = draft.items("short", at + 1, vec![put(at % 23, format!("short {at}"))]);
        }
        place.add_at(None.or((n > first).then(|| n - 1)), draft);
        let pending = vec![write(-4, "given", format!("resume value of {at}")), write(7, "late", format!("{at}"))];
        commit(backend, &place.pending(n, writes(n, task(1), "p", pending)));
    }
}

pub(super) fn linear(backend: &dyn Log) {
    let (place, other) = (root_of(backend, "long"), root_of(backend, "other"));
    fill(backend, &place, 1..=200);
    fill(backend, &other, 1_000..=1_010);
    let all: Vec<u64> = (1..=200).collect();
    let stays = shown(backend, &other, 1_010);
    assert_eq!(prune(backend, &place, 200, 200), Pruned::default(), "the head stays");
    let estimate = PruneSpan::new(place.record(1).branch, 0, 49);
    let estimate = backend.prune_estimate(&place.thread, &[estimate]).expect("a pruning is estimated");
    let pruned = lawful(backend, &place, &all, (1, 50));
    assert_eq!((pruned.checkpoints, estimate.checkpoints), (50, 50));
    assert!(pruned.values > 0 && pruned.bytes > 0 && estimate.bytes > 0);
    assert_eq!(lawful(backend, &place, &all, (1, 50)), Pruned::default(), "they are pruned once");
    // Beside those that were pruned before, after them, between, and at index snapshots.
    assert_eq!(lawful(backend, &place, &all, (51, 64)).checkpoints, 14);
    assert_eq!(lawful(backend, &place, &all, (65, 66)).checkpoints, 2);
    assert_eq!(lawful(backend, &place, &all, (100, 140)).checkpoints, 41);
    let mut query = CheckpointQuery::new(place.thread.clone(), place.namespace.clone());
    (query.before, query.limit) = (Some(id(143)), 4);
    let page = ids(&backend.checkpoints(&query).expect("checkpoints are listed"));
    assert_eq!(page, id_list([142, 141, 99, 98]), "a page is full unless it is the last");
    assert_eq!(lawful(backend, &place, &all, (80, 99)).checkpoints, 20);
    assert_eq!(lawful(backend, &place, &all, (67, 79)).checkpoints, 13);
    assert_eq!(lawful(backend, &place, &all, (150, 150)).checkpoints, 1);
    assert_eq!(lawful(backend, &place, &all, (128, 199)).checkpoints, 58);
    assert_eq!(shown(backend, &other, 1_010), stays, "another thread is as it was");
    (query.before, query.limit) = (None, 0);
    assert_eq!(ids(&backend.checkpoints(&query).expect("checkpoints are listed")), id_list([200]));
    query.namespace = None;
    assert_eq!(ids(&backend.checkpoints(&query).expect("checkpoints are listed")), id_list([200]));
    assert_eq!(backend.thread_size(&place.thread).expect("a thread is counted").checkpoints, 1);
    // The history goes on, and can be pruned again.
    for n in 201..=210 {
        place.add(on(n, n - 1).items("list", n, vec![put(n, "later")]));
    }
    let all: Vec<u64> = (200..=210).collect();
    assert_eq!(lawful(backend, &place, &all, (200, 209)).checkpoints, 10);
    let report = backend.check().expect("the check runs");
    assert_eq!((report.checkpoints, report.pruned), (12, 209));
}

/// A pruned checkpoint retains its record, and every read of its state refuses it.
pub(super) fn refused(backend: &dyn Log) {
    let place = root_of(backend, "t");
    fill(backend, &place, 1..=9);
    let before = place.record(3);
    assert_eq!(prune(backend, &place, 2, 5).checkpoints, 4);
    let after = place.record(3);
    assert!(after.pruned && after.metadata.is_none());
    assert_eq!(
        (after.point.clone(), after.seq, after.parent, after.branch, after.ordinal, after.step, after.source),
        (before.point, before.seq, before.parent, before.branch, before.ordinal, before.step, before.source)
    );
    assert_eq!((after.created_at, after.run), (before.created_at, before.run));
    assert_eq!(place.record(6).parent, Some(id(5)), "a checkpoint names its pruned parent");
    let at = place.point(4);
    let is_pruned = |error: Option<StoreError>| {
        assert!(matches!(error, Some(StoreError::CheckpointPruned { id: of, .. }) if of == id(4)), "{error:?}");
    };
    is_pruned(backend.state(&at).err());
    is_pruned(backend.writes(&at).err());
    is_pruned(backend.items(&at, "list", ItemRange::All, &mut |_| Ok(())).err());
    is_pruned(backend.list_len(&at, "list").err());
    is_pruned(backend.find_item(&at, "list", "id-1", &mut |_| Ok(())).err());
    is_pruned(backend.search_list(&at, "list", "text").err());
    is_pruned(backend.list_reference(&at, "list").err());
    is_pruned(backend.read_state(&at, &mut |_| Ok(true)).err());
    is_pruned(backend.commit(&place.batch(Some(9), [on(20, 4)])).err());
    is_pruned(backend.commit(&place.pending(9, writes(4, task(1), "p", vec![write(0, "x", "late")]))).err());
    let of = ListRef::new(place.namespace.clone(), id(4), "list");
    let change =
        on(20, 9).change("list", 99, ChangeValue::Items(vec![ItemChange::new(0, ItemOp::Reference(of), None)]));
    is_pruned(backend.commit(&place.batch(Some(9), [change])).err());
    is_pruned(backend.commit(&root_of(backend, "fork").batch(None, [fork_of(20, at)])).err());
    // The lineage has its ordinals, and the versions of kept checkpoints alone.
    let found = backend.ancestors(&place.point(9), &[0, 3, 8]).expect("reads a lineage");
    let found: Vec<(u64, bool)> = found.into_iter().flatten().map(|record| (record.ordinal, record.pruned)).collect();
    assert_eq!(found, [(0, false), (3, true), (8, false)]);
    let mut ordinals = Vec::new();
    let visited = backend.versions(&place.point(9), Some("x"), 0, &mut |version| {
        ordinals.push(version.channel.ordinal);
        Ok(true)
    });
    visited.expect("reads versions");
    assert_eq!(ordinals, [8, 7, 6, 5, 0]);
    let changes = backend.search_list(&place.point(9), "list", "number").expect("a list is searched");
    assert!(changes.iter().all(|change| [0, 5, 6, 7, 8].contains(&change.ordinal)), "{changes:?}");
    let followed = backend.changes_after(&LogPosition::START, None, 100).expect("the log is followed");
    let followed: Vec<_> = followed.records.into_iter().map(|(_, record)| record).collect();
    assert_eq!(ids(&followed), id_list([1, 6, 7, 8, 9]));
}

/// Branches, forks of other threads, heads, names and references hold the checkpoints on which they rest.
pub(super) fn held(backend: &dyn Log) {
    let (place, fork, inside) = (root_of(backend, "t"), root_of(backend, "fork"), root_of(backend, "t").inside("a:1"));
    fill(backend, &place, 1..=40);
    for n in 41..=45 {
        let draft = on(n, if n == 41 { 10 } else { n - 1 });
        place.add_at(Some(n - 1), draft.items("list", 100 + n, vec![put(n, "on a branch")]));
    }
    for n in 100..=103 {
        let draft = match n {
            100 => fork_of(n, place.point(20)),
            _ => on(n, n - 1),
        };
        let draft = draft.value("x", 100 + n, "of the fork").items("list", 100 + n, vec![put(n, "of the fork")]);
        fork.add_at((n > 100).then(|| n - 1), draft);
    }
    let of = ListRef::new(place.namespace.clone(), id(30), "list");
    let reference = ChangeValue::Items(vec![ItemChange::new(0, ItemOp::Reference(of), None), put(90, "beside")]);
    inside.add(begin(200).change("list", 1, reference));
    let name = OperationField::Branch("named".into());
    let named = Some(OperationValue::Checkpoint(id(34)));
    let change = OperationChange::new(place.thread.clone(), place.namespace.clone(), name, None, named);
    let mut operation = NewOperation::new(OperationKind::NameBranch, moment(300));
    operation.changes.push(change);
    backend.operate(&operation).expect("a branch is named");
    let elsewhere: Vec<ShownState> = (100..=103).map(|n| shown(backend, &fork, n)).collect();
    let referenced = shown(backend, &inside, 200);
    let all: Vec<u64> = (1..=45).collect();
    let pruned = lawful(backend, &place, &all, (1, 40));
    let kept: Vec<u64> = all.iter().copied().filter(|n| !place.record(*n).pruned).collect();
    assert_eq!(kept, [10, 20, 30, 34, 40, 41, 42, 43, 44, 45]);
    assert_eq!(pruned.checkpoints, 35);
    assert_eq!((100..=103).map(|n| shown(backend, &fork, n)).collect::<Vec<_>>(), elsewhere);
    assert_eq!(shown(backend, &inside, 200), referenced);
    assert_eq!(lawful(backend, &place, &all, (41, 44)).checkpoints, 4);
    assert_eq!(prune(backend, &fork, 100, 102).checkpoints, 3);
    assert_eq!(shown(backend, &fork, 103), elsewhere[3]);
    assert_eq!(shown(backend, &inside, 200), referenced);
    clean(backend);
    // The checkpoints below a deleted fork can be pruned.
    _ = backend.delete_threads(std::slice::from_ref(&fork.thread)).expect("a thread is deleted");
    _ = backend.reclaim().expect("it is erased");
    assert_eq!(lawful(backend, &place, &all, (20, 20)).checkpoints, 1);
    _ = backend.delete_threads(std::slice::from_ref(&place.thread)).expect("a pruned thread is deleted");
    _ = backend.reclaim().expect("it is erased");
    clean(backend);
    assert_eq!(backend.check().expect("the check runs").values, 0, "nothing is left");
}

/// One write that two rows of a checkpoint hold goes with the second one.
pub(super) fn shared(backend: &dyn Log) {
    let place = root_of(backend, "t");
    let large = "a large value ".repeat(300);
    place.add(begin(1).tasks(&["node"]));
    for n in 2..=8 {
        let both = writes(n - 1, task(1), "p", vec![write(0, "x", format!("{large}{n}"))]);
        let draft = on(n, n - 1).tasks(&["node"]).consumed(both).value_of("x", n, task(1), 0);
        // The second row of a value lives as long as nothing replaces it.
        let draft = draft.items("list", n, vec![put_of(n % 3, task(1), 0, 0)]);
        place.add_at(Some(n - 1), if n == 3 { draft.value_of("once", n, task(1), 0) } else { draft });
    }
    let all: Vec<u64> = (1..=8).collect();
    for n in 1..=7 {
        assert_eq!(lawful(backend, &place, &all, (n, n)).checkpoints, 1);
    }
    let once = place.text(8, "once").expect("it was written once");
    assert_eq!(once.as_bytes(), &*bytes(format!("{large}3")).data);
    assert_eq!(shown(backend, &place, 8).1.len(), 3);
}

/// A list that begins as that of a checkpoint of another namespace, with an item of its own.
fn list_of(of: &CasePlace<'_>, n: u64, beside: u64) -> ChangeValue {
    let of = ListRef::new(of.namespace.clone(), id(n), "list");
    ChangeValue::Items(vec![ItemChange::new(0, ItemOp::Reference(of), None), put(beside, format!("item {beside}"))])
}

/// Namespaces of subgraphs are pruned as a whole, unless something outside rests on them.
pub(super) fn namespaces(backend: &dyn Log) {
    let (root, fork) = (root_of(backend, "t"), root_of(backend, "fork"));
    fill(backend, &root, 1..=20);
    let inside = ["a:1", "a:1|b:2", "referenced:1", "forked:1", "named:1", "stated:1", "other:1", "grown:1"];
    let [outer, inner, referenced, forked, named, stated, other, grown] = inside.map(|path| root.inside(path));
    let value = |n: u64| begin(n).value("x", 1, format!("a value of {n}, stored apart from its row"));
    outer.add(begin(100).tasks(&["node"]).change("list", 1, list_of(&root, 5, 90)));
    outer.add(on(101, 100).items("list", 2, vec![put(91, "more")]));
    outer.add_at(Some(101), on(102, 100).items("list", 2, vec![put(91, "on a branch")]));
    commit(backend, &outer.pending(102, writes(100, task(1), "p", vec![write(0, "x", "of a task")])));
    inner.add(begin(200).change("list", 1, list_of(&outer, 101, 95)));
    for (place, n) in [(&referenced, 300), (&forked, 400), (&named, 500), (&other, 700), (&grown, 800)] {
        place.add_at(None, value(n).items("list", 1, vec![put(1, format!("an item of {n}"))]));
    }
    let mut usage = value(600);
    usage.0.metadata = Some(r#"{"usage": {"input_tokens": 3}}"#.into());
    stated.add_at(None, usage);
    root.add(on(21, 20).change("taken list", 1, list_of(&referenced, 300, 2)));
    fork.add(fork_of(401, forked.point(400)));
    let change = OperationChange::head(named.thread.clone(), named.namespace.clone(), Some(id(500)), None);
    let mut operation = NewOperation::new(OperationKind::Rewind, moment(900));
    let of_root = OperationChange::head(root.thread.clone(), root.namespace.clone(), Some(id(21)), Some(id(20)));
    operation.changes.extend([of_root, change]);
    backend.operate(&operation).expect("heads are moved");

    let is_held = |without: &[&CasePlace<'_>], of: &CasePlace<'_>, n: u64| {
        let without: Vec<_> = without.iter().map(|place| place.namespace.clone()).collect();
        let held = backend.unprunable(&root.thread, &without).expect("the held ones are found");
        let record = of.record(n);
        held.contains(&(record.branch, record.ordinal))
    };
    assert!(is_held(&[], &root, 5) && is_held(&[], &outer, 101), "their lists are referenced");
    assert!(!is_held(&[&outer, &inner], &root, 5) && !is_held(&[&outer, &inner], &outer, 101));
    assert!(is_held(&[&outer], &outer, 101) && !is_held(&[&other], &other, 700));
    let kept = [&referenced, &forked, &named, &stated];
    assert!(kept.iter().zip([300, 400, 500, 600]).all(|(place, n)| is_held(&[place], place, n)));

    let all: Vec<u64> = (1..=21).collect();
    let shown_of = |place: &CasePlace<'_>, n: u64| shown(backend, place, n);
    let roots: Vec<ShownState> = all.iter().map(|n| shown_of(&root, *n)).collect();
    let others: Vec<ShownState> = kept.iter().zip([300, 400, 500, 600]).map(|(place, n)| shown_of(place, n)).collect();
    let ends = [(&root, 21), (&outer, 102), (&inner, 200), (&referenced, 300), (&forked, 400), (&named, 500)];
    let ends = ends.into_iter().chain([(&stated, 600), (&other, 700), (&grown, 801)]);
    let ends: Vec<_> = ends.map(|(place, n)| (place.namespace.clone(), id(n))).collect();
    let estimate = backend.estimate_namespaces(&root.thread, &ends).expect("a pruning is estimated");
    let pruned = backend.prune_namespaces(&root.thread, &ends).expect("namespaces are pruned");
    assert_eq!((pruned.checkpoints, estimate.checkpoints), (5, 5), "two namespaces that belong together, and one");
    assert!(pruned.values > 0 && pruned.bytes > 0);
    _ = backend.reclaim().expect("their rows are reclaimed");
    clean(backend);
    let left = backend.namespaces(&root.thread).expect("namespaces are listed");
    assert!([&outer, &inner, &other].iter().all(|place| !left.contains(&place.namespace)), "{left:?}");
    assert_eq!(left.len(), 1 + kept.len() + 1, "the root, those on which something rests, and one that has grown");
    assert_eq!(all.iter().map(|n| shown_of(&root, *n)).collect::<Vec<_>>(), roots);
    assert_eq!(kept.iter().zip([300, 400, 500, 600]).map(|(place, n)| shown_of(place, n)).collect::<Vec<_>>(), others);
    assert_eq!((outer.head(), backend.checkpoint(&outer.point(100)).expect("it is looked for")), (None, None));
    let state = backend.state(&outer.point(102));
    assert!(matches!(state, Err(StoreError::CheckpointNotFound { .. })), "{state:?}");
    let again = backend.prune_namespaces(&root.thread, &ends).expect("namespaces are pruned");
    assert_eq!(again, Pruned::default());
    // The checkpoint that they alone held can go now, and the namespace can begin anew.
    assert!(lawful(backend, &root, &all, (5, 5)).checkpoints == 1);
    outer.add(begin(900).value("x", 1, "anew"));
    assert_eq!(outer.text(900, "x").as_deref(), Some("anew"));
    clean(backend);
    _ = backend.delete_threads(&[fork.thread.clone(), root.thread.clone()]).expect("threads are deleted");
    _ = backend.reclaim().expect("they are erased");
    assert_eq!(backend.check().expect("the check runs").values, 0, "nothing is left");
}

/// Items that kept checkpoints show are found, with and without an index; others are not.
pub(super) fn searched(backend: &dyn Log) {
    let place = root_of(backend, "t");
    fill(backend, &place, 1..=30);
    let find = |text: &str| {
        let page = backend.search(&SearchQuery::new(text).limit(100)).expect("texts are searched");
        let mut found: Vec<(u64, u64)> = page.hits.iter().map(|hit| (hit.seq, hit.position)).collect();
        found.sort_unstable();
        found
    };
    assert_eq!(find("number").len(), 30);
    let is_indexed = backend.enable_search(&SearchOptions::new()).is_ok();
    prune(backend, &place, 1, 29);
    let shown: Vec<String> = items(backend, &place.point(30), "list", ItemRange::All)
        .into_iter()
        .filter_map(|(.., item)| item.index.and_then(|index| index.text).map(|text| text.to_string()))
        .collect();
    let count = |text: &str| shown.iter().filter(|shown| shown.contains(text)).count();
    assert_eq!((find("number").len(), find("edited").len()), (count("number"), count("edited")));
    clean(backend);
    if is_indexed {
        // The pruning emptied the index, which follows the log anew.
        backend.enable_search(&SearchOptions::new()).expect("the rest is indexed");
        assert_eq!((find("number").len(), find("edited").len()), (count("number"), count("edited")));
        clean(backend);
        backend.disable_search().expect("an index is removed");
    }
    let without = (find("number"), find("edited"));
    if backend.enable_search(&SearchOptions::new()).is_ok() {
        assert_eq!((find("number"), find("edited")), without, "the index gives what a scan finds");
        clean(backend);
    }
}
