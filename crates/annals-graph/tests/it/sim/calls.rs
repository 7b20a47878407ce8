//! Tasks that nodes and programs call: plain and asynchronous, one after another or at the same time, with questions,
//! sleeps, failures, other tasks and graphs inside.

use std::sync::Arc;
use std::time::Duration;

use annals::state::DynState;
use annals_graph::graph::{CachePolicy, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Started;
use annals_graph::task::{AsyncTask, Task};

use super::graphs::{Inner, inner};
use super::{Rng, World};

/// The calls that a node or a program makes.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    tasks: Vec<TaskPlan>,
    /// Which task each call is of.
    order: Vec<usize>,
    /// True if all are started before the first one is awaited.
    together: bool,
}

/// A task of a seed.
#[derive(Clone, Debug)]
struct TaskPlan {
    name: String,
    weight: i64,
    /// True if the task is not an async function. It then does not wait for a turn: no other node or task runs
    /// meanwhile.
    plain: bool,
    asks: bool,
    /// Number of seconds that the task sleeps.
    sleeps: u64,
    fails: u32,
    /// True if the task is retried in the same run.
    retries: bool,
    hangs: u32,
    /// True if the results are cached. A crash leaves the cache as it is.
    cached: bool,
    inside: Option<Inner>,
    /// The task that this task calls.
    deeper: Option<Box<TaskPlan>>,
}

/// The tasks of a plan, made.
#[derive(Clone)]
pub(crate) struct Made {
    calls: Calls,
    tasks: Vec<Callable>,
    world: World,
}

#[derive(Clone)]
enum Callable {
    Plain(Task<i64, i64>),
    Awaited(AsyncTask<i64, i64>),
}

impl Calls {
    /// Makes up the calls of `caller`. Plain tasks with a graph inside only come if nothing else runs beside them.
    pub(crate) fn of(rng: &mut Rng, caller: &str, plain: bool, alone: bool) -> Self {
        let together = rng.chance(35);
        let plain = plain && !together && rng.chance(50);
        let tasks: Vec<_> = (0..1 + rng.below(2))
            .map(|at| TaskPlan::of(rng, format!("{caller} task {at}"), plain, alone || !plain, true))
            .collect();
        let mut order: Vec<usize> = (0..1 + rng.below(4)).map(|_| rng.below(tasks.len())).collect();
        if together {
            // A task whose subgraph persists its state is called once at a time.
            let mut known = vec![false; tasks.len()];
            order.retain(|at| !(std::mem::replace(&mut known[*at], true) && tasks[*at].keeps()));
        }
        Self { tasks, order, together }
    }

    /// Returns true if a subgraph persists its state.
    pub(crate) fn keep(&self) -> bool {
        self.tasks.iter().any(TaskPlan::keeps)
    }

    /// Returns true if one of the tasks interrupts.
    pub(crate) fn ask(&self) -> bool {
        self.tasks.iter().any(TaskPlan::may_ask)
    }

    pub(crate) fn build(&self, world: &World) -> Made {
        let tasks = self.tasks.iter().map(|task| task.build(world)).collect();
        Made { calls: self.clone(), tasks, world: world.clone() }
    }
}

impl TaskPlan {
    fn of(rng: &mut Rng, name: String, plain: bool, graphs: bool, deep: bool) -> Self {
        let inside = (rng.chance(45) && graphs).then(|| Inner {
            asks: rng.chance(40),
            sleeps: rng.chance(20),
            per_thread: rng.chance(50),
            alone: plain,
        });
        let deeper = (deep && rng.chance(25)).then(|| Self::of(rng, format!("{name} deeper"), plain, graphs, false));
        Self {
            weight: 1 + rng.below(9) as i64,
            plain,
            asks: rng.chance(20),
            sleeps: if rng.chance(10) { 1 + rng.below(100) as u64 } else { 0 },
            fails: if rng.chance(25) { 1 + rng.below(2) as u32 } else { 0 },
            retries: rng.chance(40),
            hangs: u32::from(!plain && rng.chance(20)),
            cached: rng.chance(20) && inside.is_none() && deeper.is_none(),
            inside,
            deeper: deeper.map(Box::new),
            name,
        }
    }

    fn may_ask(&self) -> bool {
        self.asks
            || self.inside.is_some_and(|inside| inside.asks)
            || self.deeper.as_ref().is_some_and(|deeper| deeper.may_ask())
    }

    fn keeps(&self) -> bool {
        self.inside.is_some_and(|inside| inside.per_thread) || self.deeper.as_ref().is_some_and(|deeper| deeper.keeps())
    }

    fn build(&self, world: &World) -> Callable {
        let body = Arc::new(Body {
            graph: self.inside.map(|inside| inner(world, inside)),
            deeper: self.deeper.as_ref().map(|deeper| deeper.build(world)),
            plan: self.clone(),
            world: world.clone(),
        });
        // A plain task runs on a thread, which does not wait for simulated time.
        // Before a pause of more than 5 s the run ends, and the task sleeps.
        let long = if self.weight % 3 == 0 { 20_000 } else { 500 };
        let pause = Duration::from_millis(if self.plain { 0 } else { long });
        let policy = RetryPolicy::new().max_attempts(3).initial_interval(pause).jitter(false);
        match self.plain {
            true => {
                let run = move |n: i64, context: &Context| annals_graph::block_on(body.run(n, context.clone()));
                Callable::Plain(self.options(Task::new(self.name.as_str(), run), policy))
            }
            false => {
                let run = move |n: i64, context: Context| {
                    let body = Arc::clone(&body);
                    async move { body.run(n, context).await }
                };
                Callable::Awaited(self.options(Task::new(self.name.as_str(), run), policy))
            }
        }
    }

    fn options<K>(&self, mut task: Task<i64, i64, K>, policy: RetryPolicy) -> Task<i64, i64, K> {
        if self.cached {
            task = task.cache_policy(CachePolicy::new());
        }
        if self.retries { task.retry(policy) } else { task }
    }
}

/// The function of a task.
struct Body {
    plan: TaskPlan,
    world: World,
    graph: Option<CompiledGraph<DynState>>,
    deeper: Option<Callable>,
}

impl Body {
    async fn run(&self, n: i64, context: Context) -> NodeResult<i64> {
        let plan = &self.plan;
        if !plan.plain {
            self.world.turns.wait(&format!("{} of {n}", plan.name)).await;
        }
        self.world.attempt(&context, plan.hangs, plan.fails).await?;
        let mut result = n * 3 + plan.weight;
        if plan.sleeps > 0 {
            context.sleep_for(Duration::from_secs(plan.sleeps))?;
        }
        if plan.asks {
            let answer = context.interrupt(format!("{} of {n}?", plan.name))?;
            result += answer.as_str().map_or(0, str::len) as i64;
        }
        if let Some(graph) = &self.graph {
            let input = DynUpdate::new().set("sum", result);
            let done = if plan.plain { graph.invoke(&context, input)? } else { graph.ainvoke(&context, input).await? };
            result += done.state().get("sum").as_int().unwrap_or(0);
        }
        result += match &self.deeper {
            Some(Callable::Plain(task)) => task.call(&context, n + 1)?,
            Some(Callable::Awaited(task)) => task.start(&context, n + 1).await?,
            None => 0,
        };
        Ok(result)
    }
}

impl Made {
    /// Makes the calls. Returns their results in order.
    pub(crate) async fn run(&self, n: i64, context: &Context) -> NodeResult<Vec<i64>> {
        let calls = self.calls.order.iter().map(|at| &self.tasks[*at]);
        let mut results = Vec::new();
        if self.calls.together {
            let start = |(at, task): (usize, &Callable)| task.start(context, n + at as i64);
            let started: Vec<_> = calls.enumerate().map(start).collect();
            for task in started {
                results.push(task.await?);
            }
            return Ok(results);
        }
        for (at, task) in calls.enumerate() {
            // It runs on a thread, and everything else waits for it.
            let busy = matches!(task, Callable::Plain(_)).then(|| self.world.turns.busy());
            let result = task.start(context, n + at as i64 + results.last().unwrap_or(&0) % 5).await;
            drop(busy);
            results.push(result?);
        }
        Ok(results)
    }
}

impl Callable {
    fn start(&self, context: &Context, n: i64) -> Started<i64> {
        match self {
            Self::Plain(task) => task.start(context, n),
            Self::Awaited(task) => task.start(context, n),
        }
    }
}
