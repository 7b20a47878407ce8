//! Approval by a person: a run is interrupted, the process ends, and another process resumes the run.
//!
//! Run it with `cargo run --example human_in_the_loop`.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use annals_graph::prelude::*;

#[derive(State, Clone, Default)]
struct Order {
    #[channel(last)]
    item: String,
    #[channel(last)]
    price: i64,
    #[channel(last)]
    status: String,
}

fn graph() -> Result<CompiledGraph<Order>> {
    let graph = StateGraph::<Order>::new()
        .node("price", |order: &Order| Ok(Order::update().price(10 * order.item.len() as i64)))
        .node("approve", |order: &Order, context: &Context| {
            // Without a resume value the run ends here; with one, the node runs again and the call returns it.
            let resumed = context.interrupt(format!("Buy a {} for {}?", order.item, order.price))?;
            Ok(Order::update().status(if resumed.as_bool() == Some(true) { "approved" } else { "refused" }))
        })
        .node("buy", |order: &Order| Ok(Order::update().status(format!("bought for {}", order.price))))
        .edge(START, "price")
        .edge("price", "approve")
        .branch("approve", |order: &Order| if order.status == "approved" { "buy" } else { END })
        .compile()?;
    Ok(graph)
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("orders.db");

    let store = Store::open(&file)?;
    for (thread, item) in [("order-1", "boat"), ("order-2", "castle")] {
        let waiting = graph()?.invoke(&store.thread(thread)?, Order::update().item(item))?;
        assert!(!waiting.is_done());
        println!("{thread}: {}", waiting.interrupts()[0].value.as_str().unwrap_or_default());
    }
    drop(store);

    // Later, in another process: the interrupt is in the file, and is read without a graph.
    let store = Store::open(&file)?;
    let (first, second) = (store.thread("order-1")?, store.thread("order-2")?);
    let open = first.head()?.expect("it ran").interrupts()?;
    assert_eq!(open[0].1, Value::from("Buy a boat for 40?"));

    let done = graph()?.invoke(&first, Command::resume(true))?;
    assert_eq!(done.state().status, "bought for 40");
    let done = graph()?.invoke(&second, Command::resume(false))?;
    assert_eq!(done.state().status, "refused");
    assert!(first.head()?.expect("it ran").interrupts()?.is_empty(), "resumed");
    println!("order-1: bought for 40\norder-2: refused");
    Ok(())
}
