//! Finds the most similar image by the cosine of the embeddings, and shows the shapes of patch tokens and a hidden
//! layer.
//!
//!     cargo run --release --example embeddings                             # the embedded digit classifier on its
//!     samples
//!     cargo run --release --example embeddings -- path/to/dinov2 a.jpg b.jpg c.jpg

use hipvit::image::{Limits, open};
use hipvit::ndarray::ArrayView1;
use hipvit::pipeline::Source;
use hipvit::{Result, Session, digits};

fn cosine(a: ArrayView1<'_, f32>, b: ArrayView1<'_, f32>) -> f32 {
    a.dot(&b) / (a.dot(&a) * b.dot(&b)).sqrt()
}

fn main() -> Result<()> {
    // Request tokens and hidden layers before the model is loaded.
    let builder = Session::builder().tokens(true).hidden_layers([0]);
    let mut arguments = std::env::args().skip(1);
    let (session, names, images) = match arguments.next() {
        Some(model) => {
            let files: Vec<String> = arguments.collect();
            let images = files.iter().map(|file| Ok(open(file, Limits::default())?));
            (
                builder.load(model)?,
                files.clone(),
                images.collect::<Result<Vec<_>>>()?,
            )
        }
        None => {
            let samples: Vec<Source> = digits::samples().collect();
            let names = samples.iter().map(Source::name).collect();
            let images = samples.iter().map(|sample| sample.decode(Limits::default()));
            (builder.tinyvit32()?, names, images.collect::<Result<Vec<_>>>()?)
        }
    };
    let outputs = session.run(&images)?;
    for (name, image) in names.iter().zip(outputs.iter()) {
        let others = names
            .iter()
            .zip(outputs.iter())
            .filter(|(other, _)| *other != name);
        let similar = others.map(|(other, outputs)| (cosine(image.embedding(), outputs.embedding()), other));
        if let Some((similarity, other)) = similar.max_by(|a, b| a.0.total_cmp(&b.0)) {
            println!("{name} is most similar to {other} ({similarity:.3})");
        }
    }
    if let (Some(tokens), Some(hidden)) = (outputs.tokens(), outputs.hidden_layer(0)) {
        println!(
            "patch tokens {:?}, tokens after block 0 {:?}",
            tokens.shape(),
            hidden.shape()
        );
    }
    Ok(())
}
