// Streams a file with the generated client and prints the windows: URL KEY FILE.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"example/earshot"
)

const chunkBytes = 256 * 1024

func main() {
	url, key, path := os.Args[1], os.Args[2], os.Args[3]
	ctx := context.Background()
	audio, err := os.ReadFile(path)
	check(err)
	client, err := earshot.NewClientWithResponses(url, earshot.WithRequestEditorFn(
		func(_ context.Context, request *http.Request) error {
			request.Header.Set("X-Api-Key", key)
			return nil
		}))
	check(err)

	created, err := client.CreateSessionWithResponse(ctx, earshot.CreateSession{Type: "file", ContentType: "audio/flac"})
	check(err)
	if created.JSON200 == nil {
		log.Fatalf("create: %s", created.Body)
	}
	session, next := created.JSON200.SessionId, created.JSON200.ChunkSequence
	for len(audio) > 0 {
		size := min(len(audio), chunkBytes)
		taken, err := client.UploadChunkWithResponse(ctx, session, next, nil, earshot.AudioChunk{Data: audio[:size]})
		check(err)
		if taken.JSON200 == nil {
			log.Fatalf("chunk: %s", taken.Body)
		}
		audio, next = audio[size:], taken.JSON200.ChunkSequence
	}
	again, err := client.UploadChunkWithResponse(ctx, session, 0, nil, earshot.AudioChunk{Data: []byte("again")})
	check(err)
	if again.JSON409 == nil || again.JSON409.StatusCode != 409 {
		log.Fatalf("a number that was taken: %s", again.Body)
	}
	readonly := true
	ended, err := client.UpdateSessionWithResponse(ctx, session, earshot.UpdateSession{MakeReadonly: &readonly})
	check(err)
	if ended.StatusCode() != 204 {
		log.Fatalf("readonly: %s", ended.Body)
	}

	token := ""
	for {
		page, err := client.ReadStatusWithResponse(ctx, session, &earshot.ReadStatusParams{NextToken: &token})
		check(err)
		if page.JSON200 == nil {
			log.Fatalf("status: %s", page.Body)
		}
		for _, event := range page.JSON200.Inference.Results {
			fmt.Println(event.StartTime, event.EndTime, event.Tags[0].Name)
		}
		if page.JSON200.Inference.Page.NextToken == nil {
			break
		}
		token = *page.JSON200.Inference.Page.NextToken
	}
	deleted, err := client.DeleteSessionWithResponse(ctx, session)
	check(err)
	if deleted.StatusCode() != 204 {
		log.Fatalf("delete: %s", deleted.Body)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
