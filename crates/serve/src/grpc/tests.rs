use super::*;

fn tensor(datatype: &str, contents: Option<InferTensorContents>) -> InferInputTensor {
    InferInputTensor {
        name: "x".into(),
        datatype: datatype.into(),
        shape: vec![1],
        contents,
        ..InferInputTensor::default()
    }
}

fn read_one(tensor: InferInputTensor, raw: &[&'static [u8]]) -> Result<Data, Failure> {
    let request = proto::ModelInferRequest {
        inputs: vec![tensor],
        raw_input_contents: raw.iter().map(|&bytes| Bytes::from_static(bytes)).collect(),
        ..proto::ModelInferRequest::default()
    };
    Ok(read(request)?.inputs.remove(0).data)
}

#[test]
fn elements_are_raw_or_in_their_field() {
    let contents = InferTensorContents {
        uint_contents: vec![7, 255],
        fp32_contents: vec![0.5],
        bytes_contents: vec![Bytes::from_static(b"a")],
        ..InferTensorContents::default()
    };
    let of = |datatype| read_one(tensor(datatype, Some(contents.clone())), &[]);
    assert_eq!(of("UINT8"), Ok(Data::Numbers(vec![7.0, 255.0])));
    assert_eq!(of("FP32"), Ok(Data::Numbers(vec![0.5])));
    assert_eq!(of("BYTES"), Ok(Data::Bytes(vec!["a".into()])));
    for datatype in ["FP16", "BF16"] {
        let expected = format!("input `x`: {datatype} can only be sent in `raw_input_contents`");
        assert_eq!(of(datatype).unwrap_err().message(), expected);
        let raw = read_one(tensor(datatype, None), &[b"ab"]);
        assert_eq!(raw, Ok(Data::Raw("ab".into())));
    }
    let both = read_one(tensor("FP32", Some(contents)), &[b"abcd"]).unwrap_err();
    assert_eq!(
        both.message(),
        "input `x`: has both `contents` and `raw_input_contents`. Send one of them"
    );
    let two = read_one(tensor("FP32", None), &[b"abcd", b"efgh"]).unwrap_err();
    assert_eq!(two.message(), "`raw_input_contents` has 2 tensors for 1 inputs");
}

#[test]
fn a_calls_timeout_is_read() {
    let of = |text: &'static str| {
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", text.parse().unwrap());
        timeout(&metadata)
    };
    assert_eq!(timeout(&MetadataMap::new()), Ok(None));
    assert_eq!(of("1500m"), Ok(Some(Duration::from_millis(1500))));
    assert_eq!(of("2H"), Ok(Some(Duration::from_secs(7200))));
    for wrong in ["", "5", "m", "5x", "-5m", "123456789n"] {
        assert!(of(wrong).is_err(), "{wrong}");
    }
}
