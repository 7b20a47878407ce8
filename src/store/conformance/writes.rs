//! The writes of tasks: pending, consumed, and taken over by channels.

use super::build::*;

/// Returns a place whose checkpoint 1 has three tasks.
fn started(backend: &dyn Log) -> CasePlace<'_> {
    let place = root_of(backend, "writes");
    place.add(begin(1).tasks(&["a", "b", "c"]));
    place
}

/// Shows the writes of a checkpoint in a line.
fn shown(place: &CasePlace<'_>, n: u64) -> String {
    let show = |value: &WriteValue| match value {
        WriteValue::Null => "null".to_owned(),
        WriteValue::One(payload) => String::from_utf8_lossy(&payload.data).into_owned(),
        WriteValue::Items(items) => {
            let texts: Vec<_> = items.iter().map(|item| String::from_utf8_lossy(&item.data)).collect();
            format!("[{}]", texts.join(","))
        }
        WriteValue::Delta(delta) => format!("{delta:?}"),
    };
    let records = place.writes(n);
    let lines = records.iter().map(|write| {
        let task = write.task.as_bytes()[0];
        format!("{}/{task}/{} {}={}", write.path, write.index, write.channel, show(&write.value))
    });
    lines.collect::<Vec<_>>().join("; ")
}

pub(super) fn order(backend: &dyn Log) {
    let place = started(backend);
    let mut batch = place.pending(1, writes(1, task(3), "b", vec![write(10, "x", "1"), write(2, "y", "2")]));
    batch.writes.push(writes(1, task(2), "b", vec![write(0, "x", "3"), write(-3, "s", "4")]));
    commit(backend, &batch);
    let null = NewWrite::new(1, "t", WriteValue::Null);
    commit(backend, &place.pending(1, writes(1, task(9), "a", vec![write_items(5, "l", &["p", "q"]), null])));
    let expected = "a/9/1 t=null; a/9/5 l=[p,q]; b/2/-3 s=4; b/2/0 x=3; b/3/2 y=2; b/3/10 x=1";
    assert_eq!(shown(&place, 1), expected);
    assert_eq!(place.head(), Some(id(1)), "pending writes do not move the head");
}

pub(super) fn special_indexes(backend: &dyn Log) {
    let place = started(backend);
    let add = |new| commit(backend, &place.pending(1, writes(1, task(1), "p", new)));
    add(vec![write(-1, "error", "e1"), write(0, "x", "first"), write(-4, "given", "r1")]);
    add(vec![write(-4, "given", "r2"), write(0, "x", "second"), write(1, "x", "third")]);
    let null = NewWrite::new(-1, "error", WriteValue::Null);
    add(vec![null, write(1, "y", "other channel"), write(-4, "given", "r3")]);
    let expected = "p/1/-4 given=r3; p/1/-1 error=null; p/1/0 x=first; p/1/1 x=third";
    assert_eq!(shown(&place, 1), expected);
    let consumed = writes(1, task(1), "p", vec![write(0, "x", "late"), write(-4, "given", "r4"), write(2, "z", "new")]);
    place.add(on(2, 1).consumed(consumed).value_of("x", 1, task(1), 0));
    let expected = "p/1/-4 given=r4; p/1/-1 error=null; p/1/0 x=first; p/1/1 x=third; p/1/2 z=new";
    assert_eq!(shown(&place, 1), expected, "writes that are consumed follow the same rule");
    assert_eq!(place.text(2, "x").as_deref(), Some("first"), "what was taken over is what is stored");
}

pub(super) fn consumed(backend: &dyn Log) {
    let place = started(backend);
    let first = on(2, 1).consumed(writes(1, task(1), "p", vec![write(0, "x", "one")]));
    let first = first.consumed(writes(1, task(2), "q", vec![write(0, "x", "two")])).tasks(&["d"]);
    // Its parent comes in the same batch.
    let second = on(3, 2).consumed(writes(2, task(1), "p", vec![write(0, "x", "three")]));
    commit(backend, &place.batch(Some(1), [first, second]));
    assert_eq!(shown(&place, 1), "p/1/0 x=one; q/2/0 x=two");
    assert_eq!(shown(&place, 2), "p/1/0 x=three");
    assert_eq!(shown(&place, 3), "");
    assert_eq!(place.text(3, "x"), None, "a write alone changes no channel");
    place.add_at(Some(3), on(4, 1));
    assert_eq!(shown(&place, 1), "p/1/0 x=one; q/2/0 x=two", "they stay visible after a fork");
}

pub(super) fn references(backend: &dyn Log) {
    let place = started(backend);
    let large = "large ".repeat(2_000);
    let early = writes(1, task(1), "p", vec![write(0, "x", "earlier"), write_items(1, "list", &["i0", "i1", &large])]);
    commit(backend, &place.pending(1, early));
    let with = writes(1, task(2), "q", vec![write(0, "y", &large), write_items(1, "list", &["j0"])]);
    let draft = on(2, 1).consumed(writes(1, task(3), "r", vec![write(0, "z", "consumed")]));
    let draft = draft.value_of("x", 1, task(1), 0).by(0).value_of("y", 1, task(2), 0).by(1);
    let list = vec![put_of(0, task(1), 1, 2), put_of(1, task(1), 1, 0), put_of(2, task(2), 1, 0), put(3, "new")];
    let draft = draft.value_of("z", 1, task(3), 0).by(2).items("list", 1, list).by(1);
    let mut batch = place.batch(Some(1), [draft.tasks(&["d"])]);
    batch.writes.push(with);
    // The next one takes over a write of the first, which comes in the same batch.
    let next = on(3, 2).consumed(writes(2, task(1), "p", vec![write(0, "x", "next")]));
    batch.checkpoints.push(next.value_of("x", 2, task(1), 0).0);
    commit(backend, &batch);
    assert_eq!(place.text(2, "x").as_deref(), Some("earlier"));
    assert_eq!(place.text(2, "y").as_deref(), Some(&*large));
    assert_eq!(place.text(2, "z").as_deref(), Some("consumed"));
    assert_eq!(place.text(3, "x").as_deref(), Some("next"));
    assert_eq!(place.list(3, ItemRange::All), format!("0={large} 1=i0 2=j0 3=new"));
    let tasks: Vec<_> = ["x", "y", "z", "list"].map(|name| place.channel(2, name).and_then(|c| c.task)).into();
    assert_eq!(tasks, [Some(0), Some(1), Some(2), Some(1)]);
    let mut by = Vec::new();
    let visited = backend.items(&place.point(3), "list", ItemRange::All, &mut |row| {
        by.push(row.task);
        Ok(())
    });
    visited.expect("reads items");
    assert_eq!(by, [Some(1); 4], "an item knows the task that wrote it");
}

pub(super) fn empty_list(backend: &dyn Log) {
    let place = started(backend);
    let new = vec![
        write_items(0, "l", &[]),
        NewWrite::new(1, "l", WriteValue::Null),
        write(2, "l", ""),
        write_items(3, "l", &[""]),
    ];
    commit(backend, &place.pending(1, writes(1, task(1), "p", new)));
    let values: Vec<_> = place.writes(1).into_iter().map(|write| write.value).collect();
    let empty = bytes("");
    let expected = [
        WriteValue::Items(Vec::new()),
        WriteValue::Null,
        WriteValue::One(empty.clone()),
        WriteValue::Items(vec![empty]),
    ];
    assert_eq!(values, expected, "an empty list, null, an empty value and a list of one differ");
}

pub(super) fn of_one_checkpoint(backend: &dyn Log) {
    let place = started(backend);
    place.add(on(2, 1).tasks(&["a"]));
    let mut both = place.pending(2, writes(2, task(1), "p", vec![write(0, "x", "on 2")]));
    both.writes.push(writes(1, task(1), "p", vec![write(0, "x", "on 1")]));
    commit(backend, &both);
    let (other, child) = (root_of(backend, "other"), place.inside("child:1"));
    other.add(begin(1).tasks(&["a"]));
    child.add(begin(1).tasks(&["a"]));
    commit(backend, &child.pending(1, writes(1, task(1), "p", vec![write(0, "x", "in child")])));
    assert_eq!(shown(&place, 1), "p/1/0 x=on 1");
    assert_eq!(shown(&place, 2), "p/1/0 x=on 2");
    assert_eq!(shown(&other, 1), "");
    assert_eq!(shown(&child, 1), "p/1/0 x=in child");
}
