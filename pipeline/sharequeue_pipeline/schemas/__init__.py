"""Schemas by their id, from a registry: a server that is asked over HTTP, or a directory.

    DIRECTORY/
      1.avsc      the Avro schema with the id 1, whole: it refers to no other file
      7.desc      a Protobuf schema: a descriptor set of one .proto file and its imports, from protoc

`folder` and `server` give the texts of a schema, and `lookup` keeps what a format made of them. The room `registry`
reads values with them.
"""
