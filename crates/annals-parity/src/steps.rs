//! The steps of a scenario, and the records they leave.

use std::collections::HashMap;

use annals::history::HistoryFilter;
use annals::store::CheckpointRef;
use annals_graph::graph::Drawing;
use annals_graph::prelude::{Snapshot, Store, StreamMode, Thread};
use annals_graph::task::{Interrupt, Task};
use annals_graph::{Durability, StateUpdate};
use annals_graph::{Error, Run};
use serde_json::{Map, Value as Json, json};

use crate::build::{Built, Shape, build, names};
use crate::chunks::Chunks;
use crate::expr::{Env, eval};
use crate::program::World;
use crate::scenario::{GraphDef, MODES, Options, Scenario};
use crate::subgraphs::{build_used, routed};
use crate::trace::{StoredConfig, error, interrupts, plain, snapshot};

/// The reason for which a step ends early.
pub(crate) enum Stop {
    /// An error that belongs into the trace.
    Error(Json),
    /// A feature that the runner does not have.
    Unsupported(String),
}

impl From<Error> for Stop {
    fn from(of: Error) -> Self {
        Self::Error(error(&of))
    }
}

impl From<annals::store::StoreError> for Stop {
    fn from(of: annals::store::StoreError) -> Self {
        Error::from(of).into()
    }
}

fn class(class: &str) -> Stop {
    Stop::Error(json!({"class": class}))
}

/// The meaning of a label.
#[derive(Clone, Default)]
struct Labelled {
    places: Vec<StoredConfig>,
    list: bool,
}

/// A running scenario.
pub(crate) struct Runner<'a> {
    scenario: &'a Scenario,
    options: Options,
    store: Store,
    world: World,
    graphs: HashMap<String, Result<Built, String>>,
    labels: HashMap<String, Labelled>,
    interrupts: Map<String, Json>,
}

/// The place of a run.
pub(crate) enum On {
    Nothing,
    Thread(Thread),
    At(Thread, Snapshot),
}

type Record = Map<String, Json>;

impl<'a> Runner<'a> {
    pub(crate) fn new(scenario: &'a Scenario, options: Options, store: Store) -> Self {
        let world = World::new(options.driver, scenario.cache.then(|| store.cache()));
        Self { scenario, options, store, world, graphs: HashMap::new(), labels: HashMap::new(), interrupts: Map::new() }
    }

    /// Runs all steps and returns the trace.
    pub(crate) fn run(mut self) -> Result<Json, String> {
        let mut records = Vec::new();
        for (index, step) in self.scenario.steps.iter().enumerate() {
            let mut record = Record::new();
            record.insert("index".into(), index.into());
            record.insert("do".into(), step["do"].clone());
            self.world.lock().log.clear();
            match self.step(step, &mut record) {
                Ok(()) => {}
                Err(Stop::Error(error)) => _ = record.insert("error".into(), error),
                Err(Stop::Unsupported(what)) => return Err(what),
            }
            let log = std::mem::take(&mut self.world.lock().log);
            if !log.is_empty() {
                record.insert("log".into(), log.into());
            }
            records.push(Json::Object(record));
        }
        Ok(json!({"name": self.scenario.name, "steps": records}))
    }

    fn step(&mut self, step: &Record, record: &mut Record) -> Result<(), Stop> {
        let what = step["do"].as_str().unwrap_or_default();
        if crate::kv::is_known(what) {
            let members = crate::expr::members(&Json::Object(step.clone()), &self.env());
            let found = crate::kv::run(&self.store.kv(), what, &members);
            if let Some(found) = found.map_err(|failure| Stop::Error(failure.to_json()))? {
                record.insert("result".into(), found);
            }
            return Ok(());
        }
        if what == "delete_thread" {
            let id = step.get("thread").and_then(Json::as_str).unwrap_or("1");
            _ = self.store.delete_thread(self.store.thread(id)?.id())?;
            return Ok(());
        }
        let mut built = self.graph(step.get("graph").and_then(Json::as_str).unwrap_or("main"))?;
        if let kind @ ("get_state" | "history" | "update_state" | "bulk_update") =
            step["do"].as_str().unwrap_or_default()
        {
            let known;
            (built, known) = routed(built, &self.on(step)?);
            if !known && kind.ends_with("update_state") {
                return Err(class("ValueError"));
            }
        }
        match built {
            Built::Graph(built) => self.step_on(&built, step, record),
            Built::Entry(built) => self.step_on(&built, step, record),
        }
    }

    fn step_on<B: Shape>(&mut self, built: &B, step: &Record, record: &mut Record) -> Result<(), Stop> {
        match step["do"].as_str().unwrap_or_default() {
            "invoke" => self.invoke(built, step, record),
            "stream" => self.stream(built, step, record),
            "get_state" => self.get_state(built, step, record),
            "history" => self.history(built, step, record),
            "update_state" | "bulk_update" => self.update_state(built, step, record),
            "compile" => Ok(()),
            "clear_cache" => self.clear_cache(built, step),
            "draw_mermaid" => {
                let with_styles = step.get("with_styles") != Some(&Json::Bool(false));
                record.insert("mermaid".into(), built.graph().get_graph(xray(step)).to_mermaid(with_styles).into());
                Ok(())
            }
            "graph_json" => {
                graph_json(&built.graph().get_graph(xray(step)), record);
                Ok(())
            }
            "get_subgraphs" => {
                let recurse = step.get("recurse") == Some(&Json::Bool(true));
                let found = built.graph().get_subgraphs(recurse);
                record.insert("subgraphs".into(), found.iter().map(|(at, name)| json!([at, name])).collect());
                Ok(())
            }
            other => Err(Stop::Unsupported(format!("step {other}"))),
        }
    }

    fn clear_cache<B: Shape>(&self, built: &B, step: &Record) -> Result<(), Stop> {
        let Some(task) = step.get("task").and_then(Json::as_str) else {
            return Ok(built.graph().clear_cache(names(step.get("nodes")))?);
        };
        let cache = self.world.cache(false).ok_or_else(|| class("ValueError"))?;
        Ok(Task::<Json, Json>::new(task, Ok).clear_cache(&cache)?)
    }

    fn graph(&mut self, name: &str) -> Result<Built, Stop> {
        if !self.graphs.contains_key(name) {
            let def = self.scenario.graphs.get(name).cloned().unwrap_or_default();
            let used = build_used(&def, self.scenario, self.options, &self.world);
            let def: GraphDef = serde_json::from_value(def).map_err(|error| Stop::Unsupported(error.to_string()))?;
            let built = used.and_then(|()| build(name, &def, self.options, &self.world, false));
            self.graphs.insert(name.to_owned(), built);
        }
        match &self.graphs[name] {
            Ok(built) => Ok(built.clone()),
            Err(_) => Err(class("ValueError")),
        }
    }

    fn env(&self) -> Env {
        Env { interrupts: self.interrupts.clone(), ..Env::default() }
    }

    /// Follows a reference to a stored configuration.
    fn resolve(&self, reference: &str) -> Result<StoredConfig, Stop> {
        let end = reference.find(['.', '[']).unwrap_or(reference.len());
        // The outcome of an earlier step may differ from that in the reference.
        let unknown = || Stop::Error(json!({"class": "unknown", "text": format!("no place {reference}")}));
        let labelled = self.labels.get(&reference[..end]).ok_or_else(unknown)?;
        let mut rest = &reference[end..];
        let mut at = 0;
        if labelled.list {
            let (index, after) = rest.strip_prefix('[').and_then(|r| r.split_once(']')).ok_or_else(unknown)?;
            at = index.parse().map_err(|_| unknown())?;
            rest = after;
        }
        let mut place = labelled.places.get(at).cloned().ok_or_else(unknown)?;
        while !rest.is_empty() {
            place = if let Some(after) = rest.strip_prefix(".parent") {
                rest = after;
                StoredConfig { checkpoint: place.parent, parent: None, ..place }
            } else {
                let (index, after) =
                    rest.strip_prefix(".tasks[").and_then(|r| r.split_once(']')).ok_or_else(unknown)?;
                rest = after;
                let index: usize = index.parse().map_err(|_| unknown())?;
                place.tasks.get(index).cloned().flatten().ok_or_else(unknown)?
            };
        }
        Ok(place)
    }

    fn on(&self, step: &Record) -> Result<On, Stop> {
        if !self.scenario.saver {
            return Ok(On::Nothing);
        }
        if let Some(at) = step.get("at").and_then(Json::as_str) {
            let place = self.resolve(at)?;
            let thread = self.store.thread(&place.thread)?.in_namespace(&place.ns)?;
            return Ok(match place.checkpoint {
                Some(id) => {
                    let snapshot = thread.at(id)?;
                    On::At(thread, snapshot)
                }
                None => On::Thread(thread),
            });
        }
        let thread = match step.get("thread") {
            None => self.store.thread("1")?,
            Some(Json::String(id)) => self.store.thread(id)?,
            // A graph that has a checkpointer must be given a thread.
            _ => return Err(class("ValueError")),
        };
        Ok(On::Thread(thread.in_namespace(step.get("ns").and_then(Json::as_str).unwrap_or_default())?))
    }

    fn prepare<'g, B: Shape>(&self, built: &'g B, step: &Record) -> Result<Run<'g, B::State>, Stop> {
        let mut run = match self.on(step)? {
            On::Nothing => built.graph().run(()),
            On::Thread(thread) => built.graph().run(&thread),
            On::At(_, snapshot) => built.graph().run(&snapshot),
        };
        run = self.options.driver.prepared(run, B::IS_ENTRY);
        if let Some(limit) = step.get("recursion_limit").and_then(Json::as_i64) {
            run = run.recursion_limit(u64::try_from(limit).unwrap_or(0));
        }
        run = run.interrupt_before(names(step.get("interrupt_before")));
        run = run.interrupt_after(names(step.get("interrupt_after")));
        let mut metadata = step.get("metadata").and_then(Json::as_object).cloned().unwrap_or_default();
        if let (false, Some(Json::String(thread))) = (self.scenario.saver, step.get("thread").or(Some(&json!("1")))) {
            // Without a store the thread is a name in the metadata of messages.
            metadata.insert("thread_id".into(), thread.as_str().into());
        }
        if !metadata.is_empty() {
            run = run.metadata(metadata);
        }
        run = run.strict_resume(step.get("strict_resume") == Some(&json!(true)));
        if let Some(context) = step.get("context") {
            run = run.context(context.clone());
        }
        if let Some(keys) = step.get("output_keys") {
            run = run.output_keys(names(Some(keys)));
        }
        let durability = step.get("durability").and_then(Json::as_str).or(self.scenario.durability.as_deref());
        Ok(match durability {
            Some("sync") => run.durability(Durability::Sync),
            Some("exit") => run.durability(Durability::Exit),
            _ => run.durability(Durability::Async),
        })
    }

    fn input<B: Shape>(&self, built: &B, step: &Record) -> Result<annals_graph::Input, Stop> {
        let value = eval(step.get("input").unwrap_or(&Json::Null), &self.env());
        built.input(value).map_err(|failure| Stop::Error(failure.to_json()))
    }

    fn label(&mut self, step: &Record, places: Vec<StoredConfig>, list: bool) {
        if let Some(label) = step.get("label").and_then(Json::as_str) {
            self.labels.insert(label.to_owned(), Labelled { places, list });
        }
    }

    fn label_interrupts(&mut self, step: &Record, open: &[Interrupt]) {
        if let Some(label) = step.get("label").and_then(Json::as_str) {
            let ids: Vec<_> = open.iter().map(|interrupt| interrupt.id.as_str()).collect();
            self.interrupts.insert(label.to_owned(), json!(ids));
        }
    }

    fn invoke<B: Shape>(&mut self, built: &B, step: &Record, record: &mut Record) -> Result<(), Stop> {
        let run = self.prepare(built, step)?;
        let output = self.options.driver.output(run, self.input(built, step)?)?;
        drained(output.drained.as_deref())?;
        self.label_interrupts(step, &output.interrupts);
        let mut shown = output.values.as_ref().map_or(Json::Null, plain);
        if !output.interrupts.is_empty() {
            shown = built.asking(if shown.is_null() { json!({}) } else { shown }, interrupts(&output.interrupts));
        }
        record.insert("output".into(), shown);
        Ok(())
    }

    fn stream<B: Shape>(&mut self, built: &B, step: &Record, record: &mut Record) -> Result<(), Stop> {
        let modes = match step.get("modes") {
            Some(modes) => names(Some(modes)),
            None => vec!["updates".into()],
        };
        let asked: Vec<StreamMode> =
            MODES.into_iter().filter(|mode| modes.iter().any(|known| known == mode.as_str())).collect();
        record.insert("chunks".into(), json!([]));
        let subgraphs = step.get("subgraphs") == Some(&json!(true));
        let run = self.prepare(built, step)?.subgraphs(subgraphs);
        let mut shown = Vec::new();
        let mut chunks = Chunks {
            asking: &|state, questions| built.asking(state, questions),
            message_metadata: step.get("message_metadata") == Some(&json!(true)),
            subgraphs,
            open: Vec::new(),
        };
        let mut failed = None;
        let input = self.input(built, step)?;
        let stopped =
            self.options.driver.watch(run, input, &asked, |part| match part.and_then(|p| chunks.chunk(&p)) {
                Ok(chunk) => shown.push(chunk),
                Err(error) => failed = Some(error),
            })?;
        self.label_interrupts(step, &chunks.open);
        record.insert("chunks".into(), shown.into());
        drained(stopped.as_deref())?;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn get_state<B: Shape>(&mut self, built: &B, step: &Record, record: &mut Record) -> Result<(), Stop> {
        let deep = step.get("subgraphs") == Some(&Json::Bool(true));
        let (thread, state) = match self.on(step)? {
            On::Nothing => return Err(class("ValueError")),
            On::Thread(thread) if deep => (thread.clone(), built.graph().state_with_subgraphs(&thread)?),
            On::Thread(thread) => (thread.clone(), built.graph().get_state(&thread)?),
            On::At(thread, at) if deep => (thread, built.graph().state_with_subgraphs(&at)?),
            On::At(thread, at) => (thread, built.graph().get_state(&at)?),
        };
        let (shown, place) = snapshot(&state, built, &thread);
        self.label(step, vec![place], false);
        self.label_interrupts(step, &state.interrupts);
        record.insert("snapshot".into(), shown);
        Ok(())
    }

    fn history<B: Shape>(&mut self, built: &B, step: &Record, record: &mut Record) -> Result<(), Stop> {
        let (thread, at) = match self.on(step)? {
            On::Nothing => return Err(class("ValueError")),
            On::Thread(thread) => (thread, None),
            On::At(thread, at) => (thread, Some(at)),
        };
        let mut filter = HistoryFilter::new();
        if let Some(before) = step.get("before").and_then(Json::as_str)
            && let Some(before) = self.resolve(before)?.checkpoint
        {
            filter = filter.before(before);
        }
        if let Some(limit) = step.get("limit").and_then(Json::as_u64) {
            filter = filter.limit(limit as usize);
        }
        for (name, value) in step.get("filter").and_then(Json::as_object).into_iter().flatten() {
            filter = match (name.as_str(), value) {
                ("source", Json::String(source)) => match source.parse() {
                    Ok(source) => filter.source(source),
                    Err(_) => filter.limit(0),
                },
                ("step", Json::Number(step)) => filter.step(step.as_i64().unwrap_or(i64::MIN)),
                _ => filter.metadata(name, value.clone()),
            };
        }
        let (mut shown, mut places) = (Vec::new(), Vec::new());
        let states = match &at {
            Some(at) => built.graph().state_history(at, filter)?,
            None => built.graph().state_history(&thread, filter)?,
        };
        for state in states {
            let (json, place) = snapshot(&state?, built, &thread);
            shown.push(json);
            places.push(place);
        }
        self.label(step, places, true);
        record.insert("history".into(), shown.into());
        Ok(())
    }

    fn state_update<B: Shape>(&self, built: &B, update: &Record) -> Result<StateUpdate<B::State>, Stop> {
        let values = eval(update.get("values").unwrap_or(&Json::Null), &self.env());
        let as_node = update.get("as_node").and_then(Json::as_str);
        built.update(&values, as_node).map_err(|failure| Stop::Error(failure.to_json()))
    }

    fn update_state<B: Shape>(&mut self, built: &B, step: &Record, record: &mut Record) -> Result<(), Stop> {
        let updates = match step.get("supersteps").and_then(Json::as_array) {
            None => vec![vec![self.state_update(built, step)?]],
            Some(supersteps) => {
                let mut all = Vec::new();
                for superstep in supersteps {
                    let updates = superstep.as_array().into_iter().flatten().filter_map(Json::as_object);
                    all.push(updates.map(|update| self.state_update(built, update)).collect::<Result<_, _>>()?);
                }
                all
            }
        };
        let made = match self.on(step)? {
            On::Nothing => return Err(class("ValueError")),
            On::Thread(thread) => built.graph().bulk_update_state(&thread, updates)?,
            On::At(_, at) => built.graph().bulk_update_state(&at, updates)?,
        };
        let parent = made.record().parent;
        let CheckpointRef { thread, namespace, checkpoint } = made.point();
        let (thread, ns) = (thread.as_str().into(), namespace.as_str().into());
        let place = StoredConfig { thread, ns, checkpoint: Some(*checkpoint), parent, tasks: Vec::new() };
        record.insert("config".into(), place.to_json());
        self.label(step, vec![place], false);
        Ok(())
    }
}

/// Returns the depth of a drawing.
fn xray(step: &Record) -> usize {
    match step.get("xray") {
        Some(Json::Bool(true)) => usize::MAX,
        Some(depth) => depth.as_u64().unwrap_or(0) as usize,
        None => 0,
    }
}

fn graph_json(drawing: &Drawing, record: &mut Record) {
    record.insert("nodes".into(), drawing.nodes.iter().map(|node| node.id.as_str()).collect());
    let mut edges: Vec<_> = drawing.edges.iter().collect();
    edges.sort_by_key(|edge| (&edge.source, &edge.target, edge.conditional, &edge.label));
    let shown = edges.into_iter().map(|edge| json!([edge.source, edge.target, edge.conditional, edge.label]));
    record.insert("edges".into(), shown.collect());
}

/// Returns the error of a drained run, which the reference raises.
fn drained(reason: Option<&str>) -> Result<(), Stop> {
    match reason {
        Some(reason) => Err(Stop::Error(json!({"class": "GraphDrained", "reason": reason}))),
        None => Ok(()),
    }
}
