//! The drawings of graphs in the cache of a store, for viewers of the file: the nodes and edges that no run has taken
//! are not in the log.
//!
//! An entry is made once for each graph and version. Invariant: a process looks at the file once for each graph and
//! store; a drawing that cannot be read or stored changes nothing in the run. *Absent:* drawings of graphs without a
//! name, of entrypoints, which have one node, and of subgraphs.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use crate::base::{Encoded, Value};
use crate::graph::{DEFAULT_NAME, Drawing, Graph};
use crate::limits::{DRAWING_NODES_MAX, DRAWN_GRAPHS_MAX};
use crate::store::log::{CacheChange, Log, LogExt};
use crate::store::{CacheKey, Store};

/// The label under which drawings are in the cache; the name of the graph follows it.
const DRAWINGS: &str = "drawings";

/// The stores that have the drawing of a graph, by the number of the graph and the address of the store. The reference
/// keeps the address from being used again.
type DrawnGraphs = HashMap<(usize, usize), Weak<dyn Log>>;

/// Stores the drawing of a graph, unless the store has it.
pub(super) fn store_drawing(graph: &Graph, store: &Store) {
    let has_drawing = graph.name != DEFAULT_NAME && !graph.entry && graph.nodes.len() <= DRAWING_NODES_MAX;
    if !has_drawing || !is_first(graph, store.backend()) {
        return;
    }
    // A text of a version has a number sign, so no version has the key of a graph without one.
    let key = graph.code.as_ref().map_or_else(|| "newest".to_owned(), |code| code.to_text());
    let key = CacheKey::new([DRAWINGS, &graph.name], key);
    let Ok(value) = Encoded::encode(&Value::from(document(&graph.drawing(0)))) else { return };
    // Not through `Cache`, whose reads wait for the entries that were put: no other read waits for a drawing.
    let Ok(beside) = store.backend().side_tables() else { return };
    let now = store.now();
    match beside.cached(std::slice::from_ref(&key), now) {
        Ok(stored) if stored.first().is_some_and(|stored| stored.as_ref() != Some(&value)) => {
            // The run does not wait for it either.
            drop(beside.submit_cache(vec![CacheChange::Put { key, value, now, expires_at: None }]));
        }
        _ => {}
    }
}

/// Returns whether this is the first run of a graph on a store in this process.
fn is_first(graph: &Graph, backend: &Arc<dyn Log>) -> bool {
    static DRAWN: Mutex<Option<DrawnGraphs>> = Mutex::new(None);
    let at = (graph.id, Arc::as_ptr(backend).cast::<()>().addr());
    let mut drawn = DRAWN.lock();
    let drawn = drawn.get_or_insert_default();
    if drawn.contains_key(&at) {
        return false;
    }
    if drawn.len() >= DRAWN_GRAPHS_MAX {
        drawn.retain(|_, store| store.strong_count() > 0);
    }
    if drawn.len() >= DRAWN_GRAPHS_MAX {
        drawn.clear();
    }
    drawn.insert(at, Arc::downgrade(backend));
    true
}

/// Returns the names of the nodes, and the edges. Metadata of nodes may hold values, and is left out.
fn document(drawing: &Drawing) -> Json {
    let mut shown = drawing.to_json();
    let edges = shown["edges"].take();
    json!({ "nodes": drawing.nodes.iter().map(|node| &*node.id).collect::<Vec<_>>(), "edges": edges })
}
