//! Classifies many images in bounded memory, while decoding, copies and computation overlap.
//!
//!     cargo run --release --example pipeline                               # the embedded digit classifier on its
//!     samples
//!     cargo run --release --example pipeline -- path/to/model photos/*.jpg

use hipvit::pipeline::{Pipeline, Source};
use hipvit::{Result, Session, digits};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (session, sources): (Session, Vec<Source>) = match arguments.next() {
        Some(model) => (Session::load(model)?, arguments.map(Source::from).collect()),
        None => (Session::tinyvit32()?, digits::samples().collect()),
    };
    let mut results = Pipeline::new(&session).run(sources)?;
    for item in &mut results {
        match item {
            Ok(item) => match item.top(1).first() {
                Some(best) => println!("{}: {} ({:.3})", item.name(), best.label, best.probability),
                None => println!(
                    "{}: embedding of {} channels",
                    item.name(),
                    item.embedding().len()
                ),
            },
            // This image failed, the others continue.
            Err(error) if error.index().is_some() => eprintln!("error: {error}"),
            // The whole run failed.
            Err(error) => return Err(error.into()),
        }
    }
    eprintln!("{}", results.timing());
    Ok(())
}
