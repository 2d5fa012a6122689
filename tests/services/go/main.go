// Registers, looks up, checks and deletes schemas with franz-go's registry client, and prints what it got as JSON.
package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/twmb/franz-go/pkg/sr"
)

const order = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}`
const incompatible = `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}`

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	ctx := context.Background()
	subject := os.Args[2]
	client := must(sr.NewClient(sr.URLs(os.Args[1])))
	created := must(client.CreateSchema(ctx, subject, sr.Schema{Schema: order, Type: sr.TypeAvro}))
	again := must(client.CreateSchema(ctx, subject, sr.Schema{Schema: order, Type: sr.TypeAvro}))
	found := must(client.SchemaByID(ctx, created.ID))
	looked := must(client.LookupSchema(ctx, subject, sr.Schema{Schema: order, Type: sr.TypeAvro}))
	check := must(client.CheckCompatibility(ctx, subject, -1, sr.Schema{Schema: incompatible, Type: sr.TypeAvro}))
	_, refused := client.CreateSchema(ctx, subject, sr.Schema{Schema: incompatible, Type: sr.TypeAvro})
	level := client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFull}, subject)[0]
	if level.Err != nil {
		panic(level.Err)
	}
	deleted := must(client.DeleteSubject(ctx, subject, sr.SoftDelete))
	var code int
	if answer, ok := refused.(*sr.ResponseError); ok {
		code = answer.ErrorCode
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"id":         created.ID,
		"again":      again.ID,
		"version":    looked.Version,
		"schema":     found.Schema,
		"compatible": check.Is,
		"refused":    code,
		"level":      level.Level.String(),
		"deleted":    deleted,
	})
}
