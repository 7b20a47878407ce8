//! Tells the sources of the backend in memory that they are outside the engine.

fn main() {
    println!("cargo::rustc-cfg=outside");
}
