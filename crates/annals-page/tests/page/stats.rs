//! The plots over time: a period for each part of the time that the checkpoints span.

use std::sync::Arc;

use annals::store::MemoryBackend;

use super::runs::StoppedClock;
use super::*;

#[test]
fn plots_over_time_have_a_stack_for_each_day() {
    let clock = StoppedClock::default();
    let store = Store::with_backend(Arc::new(MemoryBackend::new()), OpenOptions::new().clock(clock.clone()));
    let thread = store.thread("trip").unwrap();
    let write = |model: &str, tokens: u64, cost: f64| {
        let usage = ModelUsage::new(tokens, tokens / 10).cost_usd(cost).model(model);
        thread.write().append("messages", [Message::ai("x")]).usage(usage).commit().unwrap();
    };
    for (model, tokens, cost) in [("m-1", 900, 1.5), ("m-2", 800, 0.5), ("m-3", 700, 0.25), ("m-4", 600, 0.125)] {
        write(model, tokens, cost);
    }
    // Ten days of seconds.
    clock.go_on(864_000);
    write("m-1", 100, 3.0);
    let shown = html(&page_of(&store), "/stats");
    let plot = |title: &str| {
        let plot = shown.split("<figure class=\"plot\">").find(|part| part.contains(&format!("<h2>{title}<")));
        plot.unwrap_or_else(|| panic!("no plot {title}: {shown}")).to_owned()
    };
    let cost = plot("Cost");
    assert!(cost.contains("<small>by day and model</small>") && cost.contains("<title>1 Jan: $2.38</title>"), "{cost}");
    assert!(cost.contains("<title>11 Jan: $3.00</title>"), "{cost}");
    for (class, name) in [("c1", "m-1"), ("c2", "m-2"), ("c3", "m-3"), ("c4", "others")] {
        assert!(
            cost.contains(&format!("<rect class=\"{class}\" width=\"10\" height=\"10\" rx=\"2\"></rect></svg>{name}"))
        );
        assert_eq!(
            cost.matches(&format!("<rect class=\"{class}\" x=")).count(),
            if class == "c1" { 2 } else { 1 },
            "{cost}"
        );
    }
    assert_eq!(cost.matches("<g>").count(), 2, "days without a call have no stack: {cost}");
    assert!(plot("Tokens").contains("<title>1 Jan: 3.3k</title>") && plot("Size").contains("bytes written, by day"));
    assert!(!shown.contains("<h2>Time of a step<"), "no step ran: {shown}");
    let by_model = html(&page_of(&store), "/stats?by=model&last=300");
    assert!(
        by_model.contains("href=\"/stats?last=300&amp;by=node\"")
            && by_model.contains("aria-current=\"page\">by model")
    );
}
