//! Random entrypoints: the outermost program is a function that calls tasks in stages.

use std::collections::BTreeMap;

use annals_graph::graph::{Entry, Entrypoint, Final};
use annals_graph::prelude::*;

use super::calls::Calls;
use super::graphs::limits;
use super::{Rng, World};

/// The program of a seed.
#[derive(Debug)]
pub(crate) struct Program {
    stages: Vec<Stage>,
    fails: u32,
    hangs: u32,
}

#[derive(Clone, Debug)]
struct Stage {
    calls: Calls,
    /// True if the stage interrupts when the calls have ended.
    asks: bool,
}

/// Its state: it returns what its stages came to.
pub(crate) type State = Entry<i64, Vec<String>>;

impl Program {
    /// Makes up the program of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng(seed ^ 0xe27);
        let stage = |rng: &mut Rng, at: usize| Stage {
            calls: Calls::of(rng, &format!("stage {at}"), true, true),
            asks: rng.chance(25),
        };
        let stages = (0..1 + rng.below(4)).map(|at| stage(&mut rng, at)).collect();
        Self { stages, fails: rng.below(3) as u32, hangs: u32::from(rng.chance(33)) }
    }

    /// Returns the calls of its stages.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &Calls> {
        self.stages.iter().map(|stage| &stage.calls)
    }

    /// Makes the entrypoint.
    pub(crate) fn build(&self, world: &World) -> CompiledGraph<State> {
        let stages: Vec<_> = self.stages.iter().map(|stage| (stage.asks, stage.calls.build(world))).collect();
        let (outer, fails, hangs) = (world.clone(), self.fails, self.hangs);
        let run = move |n: i64, context: Context| {
            let (stages, world) = (stages.clone(), outer.clone());
            async move {
                world.turns.wait("main").await;
                world.attempt(&context, hangs, fails).await?;
                let before = context.previous::<i64>()?.unwrap_or(0);
                let (mut sum, mut lines) = (n + before, vec![format!("{n} {before}")]);
                for (at, (asks, calls)) in stages.into_iter().enumerate() {
                    let results = calls.run(sum, &context).await?;
                    sum += results.iter().sum::<i64>() % 100;
                    lines.push(format!("{results:?}"));
                    if asks {
                        let answer = context.interrupt(format!("stage {at}?"))?;
                        lines.push(answer.as_str().unwrap_or("?").to_owned());
                    }
                }
                Ok(Final::new(lines, sum))
            }
        };
        let main = Entrypoint::new("main", run).cache(&world.cache);
        let main = if world.hangs { main.timeout(limits()) } else { main };
        main.compile().unwrap()
    }
}

/// Returns its state as text.
pub(crate) fn shown(state: &State) -> BTreeMap<String, String> {
    [("value".to_owned(), format!("{:?}", state.value()))].into()
}
