//! Chooses the bindings: the committed ones or, with the feature `bindgen`, ones generated from the installed ROCm's headers.

use std::error::Error;

#[cfg(feature = "bindgen")]
#[path = "build/generate.rs"]
mod generate;

#[cfg(feature = "bindgen")]
fn bindings() -> Result<String, Box<dyn Error>> {
    let folder = std::env::var("OUT_DIR")?;
    generate::write_to(folder.as_ref())?;
    Ok(folder)
}

#[cfg(not(feature = "bindgen"))]
fn bindings() -> Result<String, Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    Ok(std::env::var("CARGO_MANIFEST_DIR")? + "/src/bindings")
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rustc-env=HIPVIT_SYS_BINDINGS={}", bindings()?);
    Ok(())
}
