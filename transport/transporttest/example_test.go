package transporttest_test

import (
	"context"
	"fmt"

	"github.com/castctl/castctl/transport"
	"github.com/castctl/castctl/transport/transporttest"
)

// A program under test gets a transport whose agent the test plays.
func ExampleNewMemory() {
	over := make(chan struct{})
	m, agent := transporttest.NewMemory(0, transport.Handlers{
		Message: func(line []byte) { fmt.Printf("message %s\n", line) },
		Closed:  func(reason string) { fmt.Println(reason); close(over) },
	})
	if err := m.Start(context.Background()); err != nil {
		fmt.Println(err)
		return
	}

	m.Write([]byte(`{"id":"r1"}`))
	line, _ := agent.Hear()
	fmt.Println("heard", line)
	agent.Say("{\"answers\":\"r1\"}\n")
	agent.Die(9)
	<-over

	// Output:
	// heard {"id":"r1"}
	// message {"answers":"r1"}
	// process terminated by signal 9
}
