//! Classifies images and prints the most likely labels of each.
//!
//!     cargo run --release --example classify                               # the embedded digit classifier on its
//!     samples
//!     cargo run --release --example classify -- path/to/model cat.jpg dog.png

use hipvit::image::{Limits, open};
use hipvit::pipeline::Source;
use hipvit::{Result, Session, digits};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (session, names, images) = match arguments.next() {
        Some(model) => {
            let files: Vec<String> = arguments.collect();
            let images = files.iter().map(|file| Ok(open(file, Limits::default())?));
            (
                Session::load(model)?,
                files.clone(),
                images.collect::<Result<Vec<_>>>()?,
            )
        }
        None => {
            let samples: Vec<Source> = digits::samples().collect();
            let names = samples.iter().map(Source::name).collect();
            let images = samples.iter().map(|sample| sample.decode(Limits::default()));
            (Session::tinyvit32()?, names, images.collect::<Result<Vec<_>>>()?)
        }
    };
    println!("{} on {}", session.name(), session.device());
    let outputs = session.run(&images)?;
    for (name, image) in names.iter().zip(outputs.iter()) {
        println!("{name}");
        for prediction in image.top(3) {
            println!("  {:6.2} %  {}", 100.0 * prediction.probability, prediction.label);
        }
    }
    Ok(())
}
