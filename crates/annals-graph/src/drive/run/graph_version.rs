//! The version and the fingerprint of the graph that began a run, and their comparison with those of a graph that
//! continues it.
//!
//! They are members of the metadata of a checkpoint: of the first one of each run, and of each 64th. *Absent:* graphs
//! without a version, which store and compare nothing.

use annals::store::log::LogExt;
use serde_json::Value as Json;

use crate::error::Error;
use crate::exec::{Head, RunError, RunStart, verify_due, verify_joins};
use crate::graph::{Graph, GraphCode};
use crate::history::Thread;
use crate::limits::GRAPH_CODE_STEPS;
use crate::store::Source;

/// The member of the metadata: the version, a number sign, and the fingerprint.
const GRAPH_CODE: &str = "graph_code";

/// Returns the metadata of a checkpoint with the version of its graph, `None` if the graph has none.
pub(super) fn with_code(metadata: Option<&str>, graph: &Graph) -> Option<String> {
    let code = graph.code.as_ref()?;
    let mut members = match metadata.map(serde_json::from_str) {
        Some(Ok(Json::Object(members))) => members,
        None => serde_json::Map::new(),
        Some(_) => return None,
    };
    members.insert(GRAPH_CODE.to_owned(), code.to_text().into());
    Some(Json::Object(members).to_string())
}

/// Verifies that a graph can continue a run: it has the nodes that are due, also at an `addressed` checkpoint, and,
/// unless the run allows another graph, the joins that were reached, and it is the one that began the run.
///
/// # Errors
/// [`RunError::DueNodeMissing`], [`RunError::JoinMissing`]; as [`verify_code`].
pub(super) fn verify_graph(
    graph: &Graph,
    thread: &Thread,
    head: &Head,
    start: &RunStart,
    (addressed, allows_changes): (bool, bool),
) -> Result<(), Error> {
    verify_due(graph, head, start, !addressed)?;
    if allows_changes {
        return Ok(());
    }
    verify_joins(graph, head, start)?;
    if addressed { Ok(()) } else { verify_code(graph, thread, head, start) }
}

/// Verifies that a graph with a version continues a run that the same one began.
///
/// # Errors
/// [`RunError::GraphChanged`]; those of reading checkpoints.
fn verify_code(graph: &Graph, thread: &Thread, head: &Head, start: &RunStart) -> Result<(), Error> {
    let Some(present) = &graph.code else { return Ok(()) };
    let continues = matches!(start, RunStart::Continue | RunStart::Command(_) | RunStart::Repeat(_));
    if !continues || head.recorded.is_empty() {
        return Ok(());
    }
    let Some(stored) = stored_code(thread, head)? else { return Ok(()) };
    let parts = present.differs_in(&stored);
    if parts.is_empty() {
        return Ok(());
    }
    let (stored, present) = (stored.version, present.version.clone());
    Err(RunError::GraphChanged { graph: graph.name.clone(), stored, present, parts }.into())
}

/// Returns the version that is stored at a head or at the newest checkpoint before it that has one, `None` if the run
/// began without.
fn stored_code(thread: &Thread, head: &Head) -> Result<Option<GraphCode>, Error> {
    let mut metadata = head.metadata.clone();
    let mut at = head.checkpoint.map(|checkpoint| (checkpoint.source, head.parent));
    for _ in 0..=GRAPH_CODE_STEPS {
        if let Some(code) = metadata.as_deref().and_then(code_in) {
            return Ok(Some(code));
        }
        let before = at.filter(|(source, _)| *source != Source::Input).and_then(|(_, parent)| parent);
        let Some(parent) = before else { return Ok(None) };
        let Some(record) = thread.store().backend().checkpoint(&thread.point(parent))? else { return Ok(None) };
        (metadata, at) = (record.metadata, Some((record.source, record.parent)));
    }
    Ok(None)
}

fn code_in(metadata: &str) -> Option<GraphCode> {
    let json: Json = serde_json::from_str(metadata).ok()?;
    GraphCode::of_text(json.get(GRAPH_CODE)?.as_str()?)
}
