//! Pruning: the state of every kept checkpoint stays as it was.

use super::build::*;

/// Deletes threads, of which nothing may be left.
pub(super) fn leave_nothing(backend: &dyn Log, places: &[&CasePlace<'_>]) {
    erase(backend, places);
    clean(backend);
    assert_eq!(backend.check().expect("the check runs").values, 0, "nothing is left");
}

/// Adds a linear history with values, lists, a map, deletes, writes and consumed writes.
pub(super) fn fill(place: &CasePlace<'_>, numbers: RangeInclusive<u64>) {
    let first = *numbers.start();
    for n in numbers {
        let at = n - first;
        let draft = if n == first { begin(n) } else { on(n, n - 1) };
        let draft = draft.tasks(&["node"]).metadata(format!(r#"{{"why":"of {at}"}}"#));
        let mut draft = draft.value("x", at + 1, format!("value number {at}, not inline at all"));
        if at.is_multiple_of(10) {
            draft = draft.value("rare", at + 1, "rare ".repeat(400) + &at.to_string());
        }
        let every = |step: u64| at > 3 && at.is_multiple_of(step);
        let mut items = vec![put_payload(at, message(&format!("id-{at}"), &format!("the text number {at}")))];
        items.extend(every(3).then(|| put_payload(at - 3, message(&format!("id-{at}"), "an edited text"))));
        items.extend(every(5).then(|| remove(at - 2)));
        items.extend((at % 17 == 16).then(|| delete_range(at - 9, at - 6)));
        let entry = put(MAP_POSITION_MIN + at % 7 * 1_000, format!("entry {at}"));
        draft = draft.items("list", at + 1, items).items("map", at + 1, vec![entry]);
        if n > first {
            // Two rows of the checkpoint hold the first write: it goes with the second one.
            let text = "written ".repeat(if at.is_multiple_of(3) { 600 } else { 1 }) + &at.to_string();
            let of_task = vec![write(0, "x", text), write_items(1, "list", &["one", "two"])];
            draft = draft.consumed(writes(n - 1, 1, of_task)).value_of("taken", at + 1, task(1), 0);
            let parts = vec![put_of(at, task(1), 1, 0), put_of(1_000 + at % 3, task(1), 0, 0)];
            draft = draft.items("parts", at + 1, parts).seen("node", &[("x", at)]);
        }
        let short = match at % 23 {
            22 => vec![delete_range(0, u64::MAX), put(0, format!("only {at}"))],
            position => vec![put(position, format!("short {at}"))],
        };
        place.add(draft.items("short", at + 1, short));
        let resume = write(-4, "given", format!("resume value of {at}"));
        place.write(n, 1, vec![resume, write(7, "late", at.to_string())]);
    }
}

pub(super) fn linear(backend: &dyn Log) {
    let [place, other] = roots(backend, ["long", "other"]);
    fill(&place, 1..=140);
    fill(&other, 1_000..=1_010);
    let estimate = backend.prune_estimate(&place.thread, &[place.span(1, 40)]).expect("a pruning is estimated");
    assert!(estimate.checkpoints == 40 && estimate.bytes > 0);
    // The head stays, and checkpoints are pruned once. Then those beside the ones that were pruned before, after them,
    // between, and at index snapshots.
    let spans = [(140, 140), (1, 40), (1, 40), (41, 56), (80, 110), (57, 79), (120, 120), (100, 139)];
    let counts = spans.map(|(first, last)| place.prune(first, last).checkpoints);
    assert_eq!(counts, [0, 40, 0, 16, 31, 23, 1, 28]);
    // The history goes on, and can be pruned again.
    (141..=150).for_each(|n| place.add(on(n, n - 1).items("list", n, vec![put(n, "later")])));
    assert_eq!(place.prune(140, 149).checkpoints, 10);
    let report = backend.check().expect("the check runs");
    assert_eq!((report.checkpoints, report.pruned), (12, 149));
}

/// A pruned checkpoint retains its record, and every read of its state refuses it.
pub(super) fn pruned_state(backend: &dyn Log) {
    let place = root_of(backend, "t");
    fill(&place, 1..=9);
    assert_eq!(place.prune(2, 5).checkpoints, 4);
    let at = place.point(4);
    let refused = [
        refusal(backend.items(&at, "list", ItemRange::All, &mut |_| Ok(()))),
        refusal(backend.find_item(&at, "list", "id-1", &mut |_| Ok(()))),
        refusal(backend.search_list(&at, "list", "text")),
        refusal(backend.list_reference(&at, "list")),
        refusal(backend.read_state(&at, &mut |_| Ok(true))),
        refusal(backend.operate(&operation(50, vec![names(&place, "b", None, Some(4))]))),
    ];
    assert_eq!(refused, ["4 is pruned"; 6]);
    let reference = on(20, 9).items("list", 99, vec![place.reference(4)]);
    let batches = [
        place.batch(Some(9), [on(20, 4)]),
        place.pending(9, writes(4, 1, vec![write(0, "x", "late")])),
        place.batch(Some(9), [reference]),
        root_of(backend, "fork").batch(None, [fork_of(20, at)]),
    ];
    refuses(backend, batches.map(|batch| (batch, "4 is pruned")));
    let changes = backend.search_list(&place.point(9), "list", "number").expect("a list is searched");
    assert!(changes.iter().all(|change| [8, 7, 6, 5, 0].contains(&change.ordinal)), "{changes:?}");
}

/// Namespaces of subgraphs are pruned as a whole, unless something outside rests on them.
pub(super) fn namespaces(backend: &dyn Log) {
    let [root, fork] = roots(backend, ["t", "fork"]);
    fill(&root, 1..=20);
    let inside = ["a:1", "a:1|b:2", "referenced:1", "forked:1", "named:1", "stated:1", "other:1", "grown:1"];
    let [outer, inner, referenced, forked, named, stated, other, grown] = inside.map(|path| root.inside(path));
    let value = |n: u64| begin(n).value("x", 1, format!("a value of {n}, stored apart from its row"));
    // A list that begins as that of a checkpoint of another namespace, with an item of its own.
    let list_of = |of: &CasePlace<'_>, n, beside| vec![of.reference(n), put(beside, format!("item {beside}"))];
    outer.add(begin(100).tasks(&["node"]).items("list", 1, list_of(&root, 5, 90)));
    outer.add(on(101, 100).items("list", 2, vec![put(91, "more")]));
    outer.add(on(102, 100).items("list", 2, vec![put(91, "on a branch")]));
    commit(backend, &outer.pending(102, writes(100, 1, vec![write(0, "x", "of a task")])));
    inner.add(begin(200).items("list", 1, list_of(&outer, 101, 95)));
    let simple = [(&referenced, 300), (&forked, 400), (&named, 500), (&other, 700), (&grown, 800)].into_iter();
    simple.for_each(|(place, n)| place.add(value(n).items("list", 1, vec![put(1, format!("an item of {n}"))])));
    stated.add(value(600).metadata(r#"{"usage": {"input_tokens": 3}}"#));
    root.add(on(21, 20).items("taken list", 1, list_of(&referenced, 300, 2)));
    fork.add(fork_of(401, forked.point(400)));
    operate(backend, 900, vec![moves(&root, Some(21), Some(20)), moves(&named, Some(500), None)]);

    let is_held = |without: &[&CasePlace<'_>], of: &CasePlace<'_>, n: u64| {
        let without: Vec<_> = without.iter().map(|place| place.namespace.clone()).collect();
        let held = backend.unprunable(&root.thread, &without).expect("the held ones are found");
        let record = of.record(n);
        held.contains(&(record.branch, record.ordinal))
    };
    assert!(is_held(&[], &root, 5) && is_held(&[], &outer, 101), "their lists are referenced");
    assert!(!is_held(&[&outer, &inner], &root, 5) && !is_held(&[&outer, &inner], &outer, 101));
    assert!(is_held(&[&outer], &outer, 101) && !is_held(&[&other], &other, 700));
    let kept = [(&referenced, 300), (&forked, 400), (&named, 500), (&stated, 600)];
    assert!(kept.iter().all(|(place, n)| is_held(&[place], place, *n)));

    let others = [(&root, 21), (&outer, 102), (&inner, 200), (&other, 700), (&grown, 801)];
    let ends: Vec<_> = kept.iter().chain(&others).map(|(place, n)| (place.namespace.clone(), id(*n))).collect();
    let pruned = backend.prune(&root.thread, PruneTarget::Namespaces(&ends)).expect("namespaces are pruned");
    assert_eq!(pruned.checkpoints, 5, "two namespaces that belong together, and one");
    assert!(pruned.values > 0 && pruned.bytes > 0);
    reclaim(backend);
    clean(backend);
    let left = ["", "forked:1", "grown:1", "named:1", "referenced:1", "stated:1"];
    assert_eq!(root.namespaces(), left, "the root, those on which something rests, and one that has grown");
    assert_eq!((outer.head(), outer.found(100)), (None, None));
    assert_eq!(refusal(backend.state(&outer.point(102))), "not found");
    let again = backend.prune(&root.thread, PruneTarget::Namespaces(&ends)).expect("namespaces are pruned");
    assert_eq!(again, Pruned::default());
    // The checkpoint that they alone held can go now, and the namespace can begin anew.
    assert_eq!(root.prune(5, 5).checkpoints, 1);
    outer.add(begin(900).value("x", 1, "anew"));
    leave_nothing(backend, &[&fork, &root]);
}

/// Items that kept checkpoints show are found, with and without an index; others are not.
pub(super) fn searched(backend: &dyn Log) {
    let place = root_of(backend, "t");
    fill(&place, 1..=30);
    let find_one = |text: &str| {
        let page = search_of(backend).search(&SearchQuery::new(text).limit(100)).expect("texts are searched");
        page.hits.iter().map(|hit| (hit.seq, hit.position)).collect::<BTreeSet<(u64, u64)>>()
    };
    let find = || ["number", "edited"].map(find_one);
    let enable = || search_of(backend).enable(&SearchOptions::new()).expect("texts are indexed");
    assert_eq!(find()[0].len(), 30);
    enable();
    place.prune(1, 29);
    let texts = place.items(30, "list", ItemRange::All).into_iter().filter_map(|(.., item)| item.index?.text);
    let texts: Vec<String> = texts.collect();
    let counts = ["number", "edited"].map(|text| texts.iter().filter(|shown| shown.contains(text)).count());
    let found = find();
    assert_eq!(found.each_ref().map(BTreeSet::len), counts);
    clean(backend);
    // The pruning emptied the index, which follows the log anew; without it, and with a new one, the hits are the same.
    enable();
    assert_eq!(find(), found);
    clean(backend);
    search_of(backend).disable().expect("an index is removed");
    assert_eq!(find(), found);
    enable();
    assert_eq!(find(), found, "the index gives what a scan finds");
    clean(backend);
}
