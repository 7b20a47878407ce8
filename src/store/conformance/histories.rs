//! Random histories of every kind of commit, compared with the mirror of a log.

use super::build::*;

const STEPS: u64 = 80;
const CHANNELS: [&str; 3] = ["list", "other", "value"];

type CasePlaces<'b> = [CasePlace<'b>; 4];

/// The place and the number of a parent.
type Above<'b> = Option<(CasePlace<'b>, u64)>;

/// Histories in two threads and two namespaces: branches, forks, lists that begin as others, writes and what is taken
/// over of them, moves of heads, names, facts, timers, repeats and conflicts.
pub(super) fn random(backend: &dyn Log) {
    for seed in 1..=3 {
        let root = root_of(backend, &format!("seed {seed}"));
        let forked = root_of(backend, &format!("seed {seed}, forks"));
        let places = [root.clone(), root.inside("in:1"), root.inside("in:1|deep:2"), forked];
        let mut dice = Dice(IdSource::from_seed(seed));
        let mut last = None;
        for step in 1..=STEPS {
            let place = if step == 1 { &places[0] } else { &places[[0, 0, 0, 1, 2, 3][dice.below(6) as usize]] };
            // Ids are unique in a namespace of a thread only.
            let n = 2 * step + u64::from(place.thread == root.thread);
            match (dice.below(12), place.head()) {
                (0, Some(head)) => write_tasks(&mut dice, place, head),
                // The law of batches is about heads that no operation moved.
                (1, Some(head)) if seed > 1 => move_head(&mut dice, place, n, head),
                (2, Some(head)) => set_timers(&mut dice, place, head),
                (3, _) => last.iter().for_each(|batch| commit(backend, batch)),
                (4, head) => {
                    let late =
                        writes(head.unwrap_or(n), 1, vec![write(0, "value", "late"), write(-4, "value", "late")]);
                    let head = head.map_or("none".into(), |head| head.to_string());
                    let text = format!("{}/{} is at {head}, not {n}", place.thread, place.namespace);
                    let mut both = place.batch(Some(n), [on(2 * n, n).consumed(late.clone())]);
                    both.checkpoints[0].consumed[0].checkpoint = id(n);
                    refuses(backend, [(both, &*text), (place.pending(n, late), &*text)]);
                }
                (_, head) => {
                    let first = checkpoint(&mut dice, &places, place, 2 * n);
                    // The parent of the second one comes in the same batch.
                    let taken = writes(2 * n, 1, vec![write(0, "value", "next")]);
                    let second = on(2 * n + 1, 2 * n).tasks(&["a", "b", "c"]).consumed(taken);
                    let second = second.value_of("value", 2 * n + 1, task(1), 0);
                    let drafts = [first, second].into_iter().take(1 + dice.below(4) as usize / 3);
                    let batch = place.batch(head, drafts);
                    commit(backend, &batch);
                    last = Some(batch);
                }
            }
        }
        if seed == 1 {
            super::batches::law(backend, &root.thread);
        }
        (0..6).for_each(|n| prune(&mut dice, &places[3 * (n % 2)]));
    }
}

/// Prunes spans of a thread.
fn prune(dice: &mut Dice, place: &CasePlace<'_>) {
    let query = CheckpointQuery { namespace: None, ..place.query() };
    let all = place.backend.checkpoints(&query).expect("lists checkpoints");
    let spans = [0; 2].map(|_| {
        let of = dice.pick(&all).expect("the thread has checkpoints");
        let first = dice.below(of.ordinal + 1);
        PruneSpan::new(of.branch, first, first + dice.below(20))
    });
    place.prune_spans(&spans);
}

/// Returns some value of a write.
fn value(dice: &mut Dice, n: u64) -> WriteValue {
    let text = |part: u64| message(&format!("id-{}", n % 9), &format!("{n}.{part}"));
    match dice.below(6) {
        0 => WriteValue::Null,
        1 => WriteValue::Items(Vec::new()),
        2 => WriteValue::Items(vec![bytes("")]),
        3 => WriteValue::Items((0..3).map(text).collect()),
        4 => WriteValue::One(bytes("")),
        _ => WriteValue::One(text(0)),
    }
}

/// Returns writes of one of the three tasks of checkpoint `n`.
fn some_writes(dice: &mut Dice, n: u64) -> NewWrites {
    let indexes: BTreeSet<u64> = (0..1 + dice.below(4)).map(|_| dice.below(9)).collect();
    let new = indexes.into_iter().map(|index| NewWrite::new(index as i32 - 4, "channel", value(dice, n + index)));
    let new = new.collect();
    let of = 1 + dice.below(3) as u8;
    NewWrites::new(id(n), task(of), ["b", "c", "a"][usize::from(of) - 1]).with(new)
}

fn write_tasks(dice: &mut Dice, place: &CasePlace<'_>, head: u64) {
    let new = [some_writes(dice, head), some_writes(dice, head)];
    // Writes on any checkpoint of the namespace are accepted, on that of the head first of all.
    let other = dice.pick(&place.stored()).filter(|n| *n != head).map(|n| some_writes(dice, n));
    commit(place.backend, &Batch { writes: new.into_iter().chain(other).collect(), ..place.batch(Some(head), []) });
}

/// Moves the head of a thread, and with it that of a subgraph; or sets a name and a fact.
fn move_head(dice: &mut Dice, place: &CasePlace<'_>, n: u64, head: u64) {
    let (root, text) = (CasePlace { namespace: Namespace::root(), ..place.clone() }, n.to_string());
    let Some(of_root) = root.head() else { return };
    let to = dice.pick(&root.stored()).filter(|to| *to != of_root);
    let changes: Vec<OperationChange> = if dice.below(3) == 0 {
        let field = |field| {
            let fields = place.backend.fields(&place.thread).expect("fields are read");
            fields.into_iter().find(|(of, _)| *of == field).map(|(_, value)| value)
        };
        let before = field(OperationField::Fact("title".into()));
        let before = if let Some(OperationValue::Text(text)) = before { Some(text) } else { None };
        let named = field(OperationField::Branch("b".into())).is_none();
        let after = Some(&*text).filter(|_| dice.below(3) > 0 || before.is_none());
        let name = named.then(|| names(&root, "b", None, Some(of_root)));
        name.into_iter().chain([fact(&root, "title", before.as_deref(), after)]).collect()
    } else {
        let Some(to) = to else { return };
        let inside = (!place.namespace.is_root()).then(|| moves(place, Some(head), dice.pick(&place.stored()[1..])));
        [moves(&root, Some(of_root), Some(to))].into_iter().chain(inside).collect()
    };
    // An operation states the last one of its thread and the newest checkpoint, which those of others do not change.
    let query = OperationQuery::new(Some(place.thread.clone()), 1);
    let last = place.backend.operations(&query).expect("operations are listed").pop().map(|record| record.id);
    let newest = root.stored().first().copied();
    let stating = |last, newest: Option<u64>| {
        let newest = Some(ExpectedNewest::new(place.thread.clone(), last, newest.map(id)));
        NewOperation { newest, ..operation(n, changes.clone()) }
    };
    let (wrong, refused) = (last.map_or(Some(1), |last| last.checked_sub(1)), format!("a field of {}", place.thread));
    let late = [stating(wrong, newest), stating(last, None), stating(last, Some(2 * n + 9))];
    refuses_operations(place.backend, late.map(|operation| (operation, &*refused)));
    let made = [0; 2].map(|_| place.backend.operate(&stating(last, newest)).expect("nothing came between"));
    assert_eq!(made[0], made[1], "repeating is safe");
}

fn set_timers(dice: &mut Dice, place: &CasePlace<'_>, head: u64) {
    let new = some_writes(dice, head);
    let timer = NewTimer::new(id(head), new.task, Some(moment(dice.below(9))).filter(|_| dice.below(4) > 0));
    commit(place.backend, &Batch { timers: vec![timer], ..place.pending(head, new) });
}

/// Returns the next checkpoint of a place: three of four go on from the head, the others fork off any checkpoint, or
/// begin anew.
fn checkpoint(dice: &mut Dice, places: &CasePlaces<'_>, place: &CasePlace<'_>, n: u64) -> CheckpointDraft {
    // Nothing in the first thread builds on the other one.
    let sources = if place.thread == places[3].thread { &places[..] } else { &places[..3] };
    let from = match dice.below(40) {
        0 => None,
        1..10 => dice.pick(sources).and_then(|from| dice.pick(&from.stored()).map(|n| (from, n))),
        _ => [place, &places[0]].into_iter().find_map(|of| Some((of.clone(), of.head()?))),
    };
    let is_local = from.as_ref().is_some_and(|(from, _)| from.point(n) == place.point(n));
    let mut draft = match &from {
        None => begin(n),
        Some((_, parent)) if is_local => on(n, *parent),
        Some((from, parent)) => fork_of(n, from.point(*parent)),
    };
    if dice.below(4) == 0 {
        draft = draft.in_full();
        let sources = [(Source::Input, -1), (Source::Loop, 0), (Source::Update, STEP_MAX), (Source::Fork, -STEP_MAX)];
        (draft.0.source, draft.0.step) = sources[dice.below(4) as usize];
    }
    draft.0.run = draft.0.run.or(Some(RunId::from_key(&place.thread, &(n % 5).to_string())));
    draft = draft.tasks(&["a", "b", "c"]);
    if let Some((_, parent)) = &from
        && is_local
        && dice.below(3) == 0
    {
        draft = draft.consumed(some_writes(dice, *parent));
    }
    if from.is_some() && dice.below(3) == 0 {
        draft = draft.seen(["n", "m"][dice.below(2) as usize], &[("list", n), ("value", 1)]);
    }
    change(dice, draft, place, from)
}

/// Changes some channels.
fn change(dice: &mut Dice, mut draft: CheckpointDraft, place: &CasePlace<'_>, parent: Above<'_>) -> CheckpointDraft {
    let n = number(draft.0.id);
    // What the tasks of the parent wrote: the first write of an index stays.
    let stored = parent.iter().flat_map(|(from, parent)| from.writes(*parent));
    let consumed = draft.0.consumed.iter().flat_map(|of| of.writes.iter().map(|new| (of.task, new.index, &new.value)));
    let mut written = BTreeMap::new();
    let all = stored.map(|of| (of.task, of.index, of.value)).chain(consumed.map(|of| (of.0, of.1, of.2.clone())));
    all.for_each(|(task, index, value)| _ = written.entry((task, index)).or_insert(value));
    let parts = |((task, index), value): ((TaskId, i32), WriteValue)| {
        let parts = (0..value.payloads().len().min(3) as u32).filter(move |_| index >= 0);
        parts.map(move |part| WriteRef::new(task, index).with_part(part))
    };
    let taken: Vec<WriteRef> = written.into_iter().flat_map(parts).collect();
    let content = |dice: &mut Dice, n: u64| match dice.pick(&taken) {
        Some(of) if dice.below(2) == 0 => Data::OfWrite(of),
        _ if n > 1_000 => Data::New(message(&format!("id-{}", n % 40), &format!("text {n}"))),
        _ => Data::New(bytes(format!("{n}"))),
    };
    for channel in CHANNELS {
        let others = [place.inside("in:1"), place.inside("in:1|deep:2")];
        let value = match dice.below(12) {
            0..4 => continue,
            4 => ChangeValue::Empty,
            5 => ChangeValue::Value(content(dice, n)),
            6 => match dice.pick(&others).and_then(|of| Some((dice.pick(&of.stored())?, of))) {
                Some((of, other)) => ChangeValue::Items(vec![other.reference(of), put(n, "own")]),
                None => continue,
            },
            _ if channel == "value" => ChangeValue::Value(content(dice, n)),
            _ => {
                let items = parent.as_ref().map(|(from, parent)| from.items(*parent, channel, ItemRange::All));
                let held = items.into_iter().flatten().map(|of| of.0).collect();
                ChangeValue::Items(items_after(dice, held, |dice, part| content(dice, 1_000 * n + part)))
            }
        };
        draft = draft.change(channel, n, value);
        if parent.is_some() && dice.below(2) == 0 {
            draft = draft.by(dice.below(3) as u32);
        }
    }
    draft
}

/// Picks operations for a list with some positions.
fn items_after(dice: &mut Dice, mut held: BTreeSet<u64>, content: impl Fn(&mut Dice, u64) -> Data) -> Vec<ItemChange> {
    let mut changes = Vec::new();
    let end = held.last().map_or(0, |position| position + 1);
    if end > 0 && dice.below(6) == 0 {
        let from = dice.below(end);
        let to = from + 1 + dice.below(8);
        changes.push(delete_range(from, to));
        held.retain(|position| !(from..to).contains(position));
    }
    // A position changes once, apart from ranges.
    let mut taken = BTreeSet::new();
    for part in 0..dice.below(4) {
        let position = if end > 0 && dice.below(3) == 0 { dice.below(end) } else { end + part };
        let removes = held.contains(&position) && dice.below(3) == 0;
        let op = if removes { ItemOp::Delete } else { ItemOp::Put(content(dice, part)) };
        changes.extend(taken.insert(position).then(|| ItemChange::new(position, op, None)));
    }
    changes
}
