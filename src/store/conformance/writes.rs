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
        WriteValue::One(payload) => text_of(&payload.data),
        WriteValue::Items(items) => format!("{:?}", items.iter().map(|item| text_of(&item.data)).collect::<Vec<_>>()),
        WriteValue::Delta(delta) => format!("{delta:?}"),
    };
    let lines = place.writes(n).into_iter().map(|write| {
        let task = write.task.as_bytes()[0];
        format!("{}/{task}/{} {}={}", write.path, write.index, write.channel, show(&write.value))
    });
    lines.collect::<Vec<_>>().join("; ")
}

pub(super) fn order(backend: &dyn Log) {
    let place = started(backend);
    let of = |of: u8, path: &str, new| NewWrites::new(id(1), task(of), path).with(new);
    let first = of(3, "b", vec![write(10, "x", "1"), write(2, "y", "2")]);
    let second = of(2, "b", vec![write(0, "x", "3"), write(-3, "s", "4")]);
    commit(backend, &Batch { writes: vec![first, second], ..place.batch(Some(1), []) });
    let null = |index| NewWrite::new(index, "t", WriteValue::Null);
    commit(backend, &place.pending(1, of(9, "a", vec![write_items(5, "l", &["p", "q"]), null(1)])));
    let expected = r#"a/9/1 t=null; a/9/5 l=["p", "q"]; b/2/-3 s=4; b/2/0 x=3; b/3/2 y=2; b/3/10 x=1"#;
    assert_eq!(shown(&place, 1), expected);
    assert_eq!(place.head(), Some(1), "pending writes do not move the head");
    place.add(on(2, 1));
    place.write(2, 1, vec![write_items(0, "l", &[]), null(1), write(2, "l", ""), write_items(3, "l", &[""])]);
    let values: Vec<_> = place.writes(2).into_iter().map(|write| write.value).collect();
    let empty = bytes("");
    let list = WriteValue::Items(vec![empty.clone()]);
    let expected = [WriteValue::Items(Vec::new()), WriteValue::Null, WriteValue::One(empty), list];
    assert_eq!(values, expected, "an empty list, null, an empty value and a list of one differ");
}

pub(super) fn special_indexes(backend: &dyn Log) {
    let place = started(backend);
    place.write(1, 1, vec![write(-1, "error", "e1"), write(0, "x", "first"), write(-4, "given", "r1")]);
    place.write(1, 1, vec![write(-4, "given", "r2"), write(0, "x", "second"), write(1, "x", "third")]);
    let null = NewWrite::new(-1, "error", WriteValue::Null);
    place.write(1, 1, vec![null, write(1, "y", "other channel"), write(-4, "given", "r3")]);
    assert_eq!(shown(&place, 1), "p/1/-4 given=r3; p/1/-1 error=null; p/1/0 x=first; p/1/1 x=third");
    let consumed = writes(1, 1, vec![write(0, "x", "late"), write(-4, "given", "r4"), write(2, "z", "new")]);
    place.add(on(2, 1).consumed(consumed).value_of("x", 1, task(1), 0));
    let expected = "p/1/-4 given=r4; p/1/-1 error=null; p/1/0 x=first; p/1/1 x=third; p/1/2 z=new";
    assert_eq!(shown(&place, 1), expected, "writes that are consumed follow the same rule");
    assert_eq!(place.text(2, "x"), "first", "what was taken over is what is stored");
}

pub(super) fn consumed(backend: &dyn Log) {
    let place = started(backend);
    let first = on(2, 1).consumed(writes(1, 1, vec![write(0, "x", "one")]));
    let first = first.consumed(writes(1, 2, vec![write(0, "x", "two")])).tasks(&["d"]);
    // Its parent comes in the same batch.
    place.add_all([first, on(3, 2).consumed(writes(2, 1, vec![write(0, "x", "three")]))]);
    assert_eq!([1, 2, 3].map(|n| shown(&place, n)), ["p/1/0 x=one; p/2/0 x=two", "p/1/0 x=three", ""]);
    assert_eq!(place.text(3, "x"), "-", "a write alone changes no channel");
    place.add(on(4, 1));
    assert_eq!(shown(&place, 1), "p/1/0 x=one; p/2/0 x=two", "they stay visible after a fork");
}

pub(super) fn references(backend: &dyn Log) {
    let place = started(backend);
    let large = "large ".repeat(2_000);
    place.write(1, 1, vec![write(0, "x", "earlier"), write_items(1, "list", &["i0", "i1", &large])]);
    let with = writes(1, 2, vec![write(0, "y", &large), write_items(1, "list", &["j0"])]);
    let draft = on(2, 1).consumed(writes(1, 3, vec![write(0, "z", "consumed")]));
    let draft = draft.value_of("x", 1, task(1), 0).by(0).value_of("y", 1, task(2), 0).by(1);
    let list = vec![put_of(0, task(1), 1, 2), put_of(1, task(1), 1, 0), put_of(2, task(2), 1, 0), put(3, "new")];
    let draft = draft.value_of("z", 1, task(3), 0).by(2).items("list", 1, list).by(1);
    // The next one takes over a write of the first, which comes in the same batch.
    let next = on(3, 2).consumed(writes(2, 1, vec![write(0, "x", "next")])).value_of("x", 2, task(1), 0);
    commit(backend, &Batch { writes: vec![with], ..place.batch(Some(1), [draft.tasks(&["d"]), next]) });
    assert_eq!(["x", "y", "z"].map(|channel| place.text(2, channel)), ["earlier", &*large, "consumed"]);
    assert_eq!(place.text(3, "x"), "next");
    assert_eq!(place.list(3), format!("0={large} 1=i0 2=j0 3=new"));
    let tasks = ["x", "y", "z", "list"].map(|name| place.channel(2, name).and_then(|channel| channel.task));
    assert_eq!(tasks, [Some(0), Some(1), Some(2), Some(1)]);
    let by = place.items(3, "list", ItemRange::All);
    assert!(by.iter().all(|(_, _, task, _)| *task == Some(1)), "an item knows the task that wrote it");
}

pub(super) fn of_one_checkpoint(backend: &dyn Log) {
    let place = started(backend);
    place.add(on(2, 1).tasks(&["a"]));
    let both = [2, 1].map(|n| writes(n, 1, vec![write(0, "x", format!("on {n}"))]));
    commit(backend, &Batch { writes: both.into(), ..place.batch(Some(2), []) });
    let (other, child) = (root_of(backend, "other"), place.inside("child:1"));
    [&other, &child].iter().for_each(|place| place.add(begin(1).tasks(&["a"])));
    child.write(1, 1, vec![write(0, "x", "in child")]);
    assert_eq!([shown(&place, 1), shown(&place, 2)], ["p/1/0 x=on 1", "p/1/0 x=on 2"]);
    assert_eq!([shown(&other, 1), shown(&child, 1)], ["", "p/1/0 x=in child"]);
}
