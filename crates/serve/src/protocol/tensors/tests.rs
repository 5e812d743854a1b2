use bytes::{BufMut, BytesMut};

use super::*;
use crate::protocol::parameters::Parameters;

const INPUTS: Inputs = Inputs {
    image_size: [2, 4],
    values: true,
    max_pixels: 100,
    max_images: 256,
    no_texts: None,
};

fn tensor(name: &str, datatype: &str, shape: &[i64], data: Data) -> InputTensor {
    InputTensor {
        name: name.into(),
        datatype: datatype.into(),
        shape: shape.into(),
        parameters: Parameters::default(),
        data,
    }
}

fn values(images: Images) -> Vec<Vec<f32>> {
    let value = |content| match content {
        Content::Values(values) => values,
        other => panic!("{other:?}"),
    };
    images.contents.into_iter().map(value).collect()
}

#[test]
fn half_precision_comes_as_raw_contents() {
    let numbers: Vec<f32> = (0..48).map(|n| n as f32 / 8.0 - 3.0).collect();
    let raw = |put: &dyn Fn(&mut BytesMut, f32)| {
        let mut bytes = BytesMut::new();
        numbers.iter().for_each(|&number| put(&mut bytes, number));
        Data::Raw(bytes.freeze())
    };
    // The numbers have few bits: each type holds them exactly.
    for (datatype, data) in [
        ("FP16", raw(&|b, x| b.put_slice(&f16::from_f32(x).to_le_bytes()))),
        ("BF16", raw(&|b, x| b.put_slice(&bf16::from_f32(x).to_le_bytes()))),
        ("FP32", raw(&|b, x| b.put_f32_le(x))),
        ("FP32", Data::Numbers(numbers.clone())),
    ] {
        let read = INPUTS
            .read(vec![tensor(PIXEL_VALUES, datatype, &[2, 3, 2, 4], data)])
            .unwrap();
        let read = values(read.images.unwrap());
        assert_eq!(read.len(), 2);
        assert_eq!(read.concat(), numbers, "{datatype}");
    }
    let json = tensor(
        PIXEL_VALUES,
        "FP16",
        &[2, 3, 2, 4],
        Data::Numbers(numbers.clone()),
    );
    let error = INPUTS.read(vec![json]).unwrap_err();
    assert_eq!(
        error.message(),
        "input `pixel_values`: FP16 can only be sent as binary data"
    );
}

#[test]
fn an_error_names_the_tensor_and_what_is_wrong() {
    let raw = |bytes: usize| Data::Raw(vec![0; bytes].into());
    for (input, expected) in [
        (
            tensor("images", "BYTES", &[1], raw(4)),
            "input `images`: the model has no such input; it has `image`, `pixels`, `pixel_values`, `text`",
        ),
        (
            tensor(IMAGE, "FP32", &[1], raw(4)),
            "input `image`: is FP32, expected BYTES",
        ),
        (
            tensor(IMAGE, "STRING", &[1], raw(4)),
            "input `image`: `STRING` is not a data type of the protocol",
        ),
        (
            tensor(IMAGE, "BYTES", &[1, 2], raw(8)),
            "input `image`: shape [1, 2] is not [n]",
        ),
        (
            tensor(IMAGE, "BYTES", &[2], raw(4)),
            "input `image`: shape [2] has 2 elements, the data has 1",
        ),
        (
            tensor(IMAGE, "BYTES", &[-1], raw(4)),
            "input `image`: shape [-1] has a negative dimension",
        ),
        (
            tensor(IMAGE, "BYTES", &[1], Data::Numbers(vec![1.0])),
            "input `image`: has numbers instead of encoded images",
        ),
        (
            tensor(PIXELS, "UINT8", &[1, 2, 2, 4], raw(16)),
            "input `pixels`: shape [1, 2, 2, 4] is not [n, height, width, 3]",
        ),
        (
            tensor(PIXELS, "UINT8", &[1, 11, 10, 3], raw(330)),
            "input `pixels`: 10×11 pixels exceed the limit of 100",
        ),
        (
            tensor(PIXELS, "UINT8", &[1, i64::MAX, i64::MAX, 3], raw(3)),
            "input `pixels`: 9223372036854775807×9223372036854775807 pixels exceed the limit of 100",
        ),
        (
            tensor(PIXELS, "UINT8", &[i64::MAX, 1, 1, 3], raw(3)),
            "input `pixels`: has 9223372036854775807 images; the queue (--queue) holds 256. Send at most 256 at once",
        ),
        (
            tensor(
                PIXELS,
                "UINT8",
                &[1, 1, 1, 3],
                Data::Numbers(vec![1.0, 2.0, 256.0]),
            ),
            "input `pixels`: 256 is not a whole number from 0 to 255",
        ),
        (
            tensor(PIXELS, "UINT8", &[1, 0, 1, 3], raw(3)),
            "input `pixels`: shape [1, 0, 1, 3] has 0 elements, the data has 3",
        ),
        (
            tensor(PIXEL_VALUES, "FP32", &[1, 3, 4, 2], raw(96)),
            "input `pixel_values`: shape [1, 3, 4, 2] is not [n, 3, 2, 4]",
        ),
        (
            tensor(PIXEL_VALUES, "FP32", &[1, 3, 2, 4], raw(95)),
            "input `pixel_values`: 95 bytes are no whole number of elements of 4 bytes",
        ),
        (
            tensor(PIXEL_VALUES, "FP64", &[1, 3, 2, 4], raw(192)),
            "input `pixel_values`: is FP64, expected FP32 or FP16 or BF16",
        ),
    ] {
        let error = INPUTS.read(vec![input]).unwrap_err();
        assert_eq!(error.message(), expected);
    }
}

#[test]
fn a_request_has_one_input() {
    let image = || tensor(IMAGE, "BYTES", &[1], Data::Bytes(vec![Bytes::from_static(b"x")]));
    assert_eq!(
        INPUTS.read(vec![image()]).unwrap().images.unwrap().contents.len(),
        1
    );
    let none = INPUTS.read(Vec::new()).unwrap_err();
    assert!(none.message().starts_with("the request has no input"), "{none}");
    let two = INPUTS.read(vec![image(), image()]).unwrap_err();
    assert!(
        two.message().starts_with("input `image`: is one of several"),
        "{two}"
    );
    let without = Inputs {
        values: false,
        ..INPUTS
    };
    let values = tensor(PIXEL_VALUES, "FP32", &[1, 3, 2, 4], Data::Numbers(vec![0.0; 24]));
    let error = without.read(vec![values]).unwrap_err();
    assert!(error.message().contains("--pixel-values"), "{error}");
}

#[test]
fn binary_tensors_count_for_what_they_become() {
    let size = |datatype: &str, bytes: usize| {
        decoded_size(&[tensor(IMAGE, datatype, &[1], Data::Raw(vec![0; bytes].into()))])
    };
    // Elements without contents: four bytes each.
    assert_eq!(size("BYTES", 4000), 1000 * ELEMENT_BYTES);
    assert_eq!(
        ["UINT8", "FP32", "FP16", "BF16", "?"].map(|datatype| size(datatype, 100)),
        [200, 200, 400, 400, 200]
    );
}

#[test]
fn no_image_is_none() {
    for input in [
        tensor(IMAGE, "BYTES", &[0], Data::Bytes(Vec::new())),
        tensor(PIXELS, "UINT8", &[0, 1, 1, 3], Data::Numbers(Vec::new())),
    ] {
        assert_eq!(
            INPUTS.read(vec![input]).unwrap().images.unwrap().contents.len(),
            0
        );
    }
}

#[test]
fn texts_are_read_alone_or_beside_images() {
    let texts = |texts: &[&'static str]| {
        let elements = texts.iter().map(|text| Bytes::from_static(text.as_bytes()));
        tensor(
            TEXT,
            "BYTES",
            &[texts.len() as i64],
            Data::Bytes(elements.collect()),
        )
    };
    let image = tensor(IMAGE, "BYTES", &[1], Data::Bytes(vec![Bytes::from_static(b"x")]));
    let alone = INPUTS.read(vec![texts(&["a", "é"])]).unwrap();
    assert!(alone.images.is_none());
    assert_eq!(alone.texts.unwrap(), ["a", "é"]);
    let both = INPUTS.read(vec![texts(&["a"]), image.clone()]).unwrap();
    assert!(both.images.is_some() && both.texts.is_some());
    let given = |inputs: &[InputTensor]| {
        let Given { images, texts } = Given::of(inputs);
        (images, texts)
    };
    assert_eq!(given(&[texts(&["a"])]), (false, true));
    assert_eq!(given(&[texts(&["a"]), image.clone()]), (true, true));
    assert_eq!(given(&[image]), (true, false));
    assert_eq!(given(&[]), (true, false));

    let error = |inputs| INPUTS.read(inputs).unwrap_err().message().to_owned();
    assert_eq!(error(vec![texts(&[])]), "input `text`: has no text");
    assert!(error(vec![texts(&["a"]), texts(&["b"])]).starts_with("input `text`: is one of several"));
    let long = tensor(
        TEXT,
        "BYTES",
        &[1],
        Data::Bytes(vec![vec![b'a'; MAX_TEXT_BYTES + 1].into()]),
    );
    assert!(error(vec![long]).contains("4097 bytes"));
    let binary = tensor(
        TEXT,
        "BYTES",
        &[1],
        Data::Bytes(vec![Bytes::from_static(b"\x89PNG")]),
    );
    assert!(error(vec![binary]).contains("not UTF-8"));
    let without = Inputs {
        no_texts: Some("the model has no text tower".into()),
        ..INPUTS
    };
    let refused = without.read(vec![texts(&["a"])]).unwrap_err();
    assert_eq!(refused.message(), "input `text`: the model has no text tower");
}

#[test]
fn what_is_mistaken_for_an_image_or_ignored_elsewhere_is_said() {
    let image = |bytes: &'static [u8]| {
        let data = Data::Bytes(vec![Bytes::from_static(bytes)]);
        INPUTS.read(vec![tensor(IMAGE, "BYTES", &[1], data)]).unwrap_err()
    };
    let url = image(b"https://example.com/cat.png");
    assert_eq!(
        url.message(),
        "input `image`: image 0 is a URL. The server fetches nothing: send the bytes of the file"
    );
    let mut shared = tensor(IMAGE, "BYTES", &[1], Data::Bytes(Vec::new()));
    let map = serde_json::json!({"shared_memory_region": "r"});
    shared.parameters = map.as_object().unwrap().clone().into();
    let error = INPUTS.read(vec![shared]).unwrap_err();
    assert!(
        error
            .message()
            .starts_with("input `image`: parameter `shared_memory_region`"),
        "{error}"
    );
}
