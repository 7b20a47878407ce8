//! The options of the nodes of a scenario: retries, caching and error handlers.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use annals::base::Value;
use annals::state::DynState;
use annals_graph::RunError;
use annals_graph::graph::{CachePolicy, NodeDefaults, Own, RetryPolicy};
use annals_graph::prelude::{NodeOptions, NodeResult};
use annals_graph::task::Context;
use serde_json::{Map, Value as Json};

use crate::build::Channels;
use crate::driver::{DriverKind, at_once, give_way};
use crate::expr::{Env, eval, text};
use crate::program::{Failure, Out, Program, World};
use crate::scenario::{NodeDef, TaskDef};
use crate::trace::plain;

/// The parts that the programs of a graph share.
pub(crate) struct GraphParts<'a> {
    pub(crate) graph: &'a str,
    pub(crate) channels: &'a Arc<Channels>,
    pub(crate) tasks: &'a Arc<Vec<TaskDef>>,
    pub(crate) world: &'a World,
}

impl GraphParts<'_> {
    /// Returns the program of a node.
    pub(crate) fn program(&self, node: &str, ops: Vec<Map<String, Json>>) -> Program {
        Program {
            graph: self.graph.to_owned(),
            node: node.to_owned(),
            ops,
            tasks: Arc::clone(self.tasks),
            world: self.world.clone(),
        }
    }

    /// Returns the function of a program.
    pub(crate) fn run(&self, program: Program) -> impl Fn(Value, &Context) -> NodeResult<Vec<Out>> + use<> {
        let channels = Arc::clone(self.channels);
        move |given: Value, context: &Context| at_once(program.run(plain(&given), &channels, context))
    }

    /// Returns the asynchronous function of a program.
    pub(crate) fn start(
        &self,
        program: Program,
    ) -> impl Fn(Value, Context) -> Pin<Box<dyn Future<Output = NodeResult<Vec<Out>>> + Send>> + use<> {
        let (program, channels) = (Arc::new(program), Arc::clone(self.channels));
        move |given: Value, context: Context| {
            let (program, channels) = (Arc::clone(&program), Arc::clone(&channels));
            Box::pin(async move {
                give_way().await;
                program.run(plain(&given), &channels, &context).await
            })
        }
    }

    fn handler(&self, node: &str, ops: &Json) -> Option<Program> {
        Some(self.program(node, serde_json::from_value(ops.clone()).ok()?))
    }

    /// Returns the options of a node.
    pub(crate) fn options(&self, node: &NodeDef) -> NodeOptions<DynState> {
        let mut options = NodeOptions::new();
        for policy in policies(node.other.get("retry")) {
            options = options.retry(policy);
        }
        if let Some(ops) = node.other.get("error_handler")
            && let Some(program) = self.handler(&format!("__error_handler__{}", node.name), ops)
        {
            options = match self.world.driver() {
                DriverKind::Blocking => options.error_handler(Own(self.run(program))),
                DriverKind::Async => options.error_handler(Own(self.start(program))),
            };
        }
        if let Some(policy) = cache_policy(node.other.get("cache")) {
            options = options.cache(policy);
        }
        options = options.defer(node.defer);
        if let Some(input) = &node.input {
            options = options.input(input.iter().map(String::as_str));
        }
        if let Some(metadata) = node.other.get("metadata").and_then(Json::as_object) {
            options = options.metadata(metadata.clone());
        }
        match node.other.get("destinations") {
            Some(Json::Object(labels)) => options.labeled_destinations(
                labels.iter().map(|(to, label)| (to.as_str(), label.as_str().unwrap_or_default())),
            ),
            list => options.destinations(crate::build::names(list)),
        }
    }

    /// Returns the defaults of a graph.
    pub(crate) fn defaults(&self, json: Option<&Json>) -> NodeDefaults<DynState> {
        let mut defaults = NodeDefaults::new();
        let Some(json) = json else { return defaults };
        for policy in policies(json.get("retry")) {
            defaults = defaults.retry(policy);
        }
        if let Some(policy) = cache_policy(json.get("cache")) {
            defaults = defaults.cache(policy);
        }
        if let Some(ops) = json.get("error_handler")
            && let Some(program) = self.handler("__default_error_handler__", ops)
        {
            defaults = match self.world.driver() {
                DriverKind::Blocking => defaults.error_handler(Own(self.run(program))),
                DriverKind::Async => defaults.error_handler(Own(self.start(program))),
            };
        }
        defaults
    }
}

/// Reads a cache policy. Its key is the text of an expression over the input.
pub(crate) fn cache_policy(json: Option<&Json>) -> Option<CachePolicy> {
    let policy = CachePolicy::new();
    let Some(expr) = json?.get("key").cloned() else { return Some(policy) };
    Some(policy.key(move |input: &Value| text(&eval(&expr, &Env { state: plain(input), ..Env::default() }))))
}

/// Reads a retry policy or a list of them.
pub(crate) fn policies(json: Option<&Json>) -> Vec<RetryPolicy> {
    match json {
        Some(Json::Array(policies)) => policies.iter().map(policy).collect(),
        Some(one) => vec![policy(one)],
        None => Vec::new(),
    }
}

fn policy(json: &Json) -> RetryPolicy {
    let mut policy = RetryPolicy::new().initial_interval(Duration::from_micros(1)).jitter(false);
    if let Some(attempts) = json.get("max_attempts").and_then(Json::as_u64) {
        policy = policy.max_attempts(u32::try_from(attempts).unwrap_or(u32::MAX));
    }
    match json.get("on").and_then(Json::as_array) {
        Some(classes) => {
            let classes: Vec<String> = classes.iter().filter_map(Json::as_str).map(str::to_owned).collect();
            policy.on_if(move |error| class_of(error).is_some_and(|class| classes.contains(&class)))
        }
        None => policy.on_if(|error| {
            // With the classes that derive from them.
            let never = ["ValueError", "RuntimeError", "GraphRecursionError", "KeyError", "TypeError"];
            class_of(error).is_some_and(|class| !never.contains(&class.as_str()))
        }),
    }
}

/// Returns the class of an error of the runner or of the library.
fn class_of(error: &(dyn Error + 'static)) -> Option<String> {
    let own = error.downcast_ref::<Failure>().map(|failure| failure.class.clone());
    let of_library = || {
        // That of a subgraph is an error of the executor as a whole.
        let of_graph = error.downcast_ref::<annals_graph::Error>().and_then(annals_graph::Error::as_run);
        error.downcast_ref::<RunError>().or(of_graph)
    };
    own.or_else(|| match of_library()? {
        RunError::Node { .. } => None,
        error => Some(error.class().to_owned()),
    })
}
