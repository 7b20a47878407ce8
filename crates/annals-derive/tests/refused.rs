//! Tests the compiler errors for structs that `#[derive(State)]` refuses.

#[test]
fn the_errors_stand_where_the_mistake_is() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
