//! The identity of tasks. Stored writes name their tasks, so an id never changes.

use super::*;
use crate::graph::{NodeOptions, StateGraph};
use crate::state::DynSchema;

fn number(n: i64) -> String {
    let mut bytes = b"#".to_vec();
    push_number(&mut bytes, n);
    String::from_utf8(bytes).unwrap()
}

#[test]
fn numbers_are_hashed_as_their_decimal_digits() {
    for n in [0, 1, 9, 10, 12, 305, 9_000, -1, -2, -10, -47, i64::MAX, i64::MIN] {
        assert_eq!(number(n), format!("#{n}"));
    }
}

#[test]
fn an_id_is_a_hash_of_the_checkpoint_the_place_and_what_makes_the_task_due() {
    let node = |_: &crate::state::DynState| Ok(());
    let graph = StateGraph::with_schema(DynSchema::new().last("a").build())
        .node_with("work", node, NodeOptions::new())
        .edge(START, "work")
        .compile()
        .unwrap()
        .graph;
    let checkpoint = CheckpointId::from_bytes([9; 16]);
    let inside = Namespace::new("outer:1").unwrap();
    let expected = |namespace: &str, text: &str| {
        let place = [checkpoint.as_bytes().as_slice(), namespace.as_bytes(), text.as_bytes()].concat();
        TaskId::from_bytes(hash::xxh3_128(&place))
    };
    let id = |namespace: &Namespace, step: i64, node: Option<usize>, push: Option<u32>| {
        let task = StepTask::new(TaskId::default(), node, push.map(|index| (index, Value::Null)));
        task_id(&mut b"used before".to_vec(), &graph, checkpoint, namespace, step, &task)
    };
    let root = Namespace::root();
    assert_eq!(id(&root, 3, Some(0), None), expected("", "work3work__pregel_pullbranch:to:work"));
    assert_eq!(id(&root, -1, None, None), expected("", "__start__-1__start____pregel_pull__start__"));
    assert_eq!(id(&root, 10, Some(0), Some(12)), expected("", "work10work__pregel_push12"));
    assert_eq!(id(&inside, 3, Some(0), None), expected("outer:1|", "work3work__pregel_pullbranch:to:work"));
}
