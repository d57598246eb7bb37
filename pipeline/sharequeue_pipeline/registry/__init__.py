"""Values with a schema registry's wire format: a schema id in front of Avro or Protobuf. The registry is a directory.

    DIRECTORY/
      1.avsc                       the Avro schema with the id 1, whole: it refers to no other file
      2.avsc
      7.desc                       a Protobuf schema: a descriptor set of one .proto file and its imports, from protoc
      subjects/orders-value.json   [1, 2]: the schema ids of a subject, oldest first

    value, Avro       00 │ schema id, 4 bytes │ datum
    value, Protobuf   00 │ schema id, 4 bytes │ message indexes │ message

The id in a value names the schema that it was written with, the *writer schema*. The *reader schema* is the one that
the options name; it gives the columns. A value of another version is read by the rules of its format: Avro resolves the
writer schema to the reader schema, Protobuf goes by field numbers.

`wire_format` cuts and joins the parts of a value, `schema_folder` finds schemas, `avro_values` and `protobuf_values`
read and write the values of one format, `fitting` compares a column with a schema, and `opening` picks the format. The
source, the sink and the archive use `opening` alone, and the exceptions of `wire_format`.
"""
