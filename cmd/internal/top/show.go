package top

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
	"github.com/berth-scheduler/berth/cmd/internal/top/screen"
)

// framesPerSecond bounds how often the terminal is written to.
const framesPerSecond = 30

// app is a screen for Bubble Tea.
type app struct {
	screen *screen.Screen
	feed   *feed
}

type tickMsg struct{}

func tick() tea.Cmd { return tea.Every(time.Second, func(time.Time) tea.Msg { return tickMsg{} }) }

// Init implements tea.Model.
func (a *app) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (a *app) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var next []tea.Cmd
	var own any = msg
	switch m := msg.(type) {
	case tickMsg:
		own = screen.Tick{At: a.feed.env.Now()}
		next = append(next, tick())
	case tea.WindowSizeMsg:
		own = screen.Size{Width: m.Width, Height: m.Height}
	case tea.KeyPressMsg:
		if m.String() == "ctrl+z" {
			return a, tea.Suspend
		}
		own = screen.Key{Name: m.String(), Text: m.Text}
	case tea.PasteMsg:
		own = screen.Key{Name: "paste", Text: m.Content}
	}
	for _, ask := range a.screen.Update(own) {
		next = append(next, a.do(ask))
	}
	return a, tea.Batch(next...)
}

// View implements tea.Model.
func (a *app) View() tea.View {
	v := tea.NewView(a.screen.View())
	v.AltScreen = true
	return v
}

// do starts what the screen asks for.
func (a *app) do(ask any) tea.Cmd {
	switch ask := ask.(type) {
	case screen.Quit:
		return tea.Quit
	case screen.Look:
		a.feed.look(ask.Job)
	case screen.Run:
		return func() tea.Msg { return a.feed.carryOut(ask.Args) }
	case screen.Shell:
		path, err := programs.Path(programs.Users)
		if err != nil {
			return func() tea.Msg { return screen.Note{Text: err.Error(), Bad: true} }
		}
		return tea.ExecProcess(exec.Command(path, "shell", ask.Job), func(err error) tea.Msg {
			if err != nil {
				return screen.Note{Text: fmt.Sprintf("the shell in job %s ended: %v", ask.Job, err), Bad: true}
			}
			return screen.Note{Text: "the shell in job " + ask.Job + " has ended"}
		})
	}
	return nil
}

// show draws s on the terminal of e.
func show(ctx context.Context, e *console.Env, s *screen.Screen) error {
	in, stop := context.WithCancel(ctx)
	defer stop()
	f := newFeed(in, e)
	p := tea.NewProgram(&app{screen: s, feed: f}, tea.WithContext(ctx), tea.WithInput(e.Stdin), tea.WithOutput(e.Stdout),
		tea.WithEnvironment(e.Environ()), tea.WithFPS(framesPerSecond), tea.WithoutSignalHandler())
	f.send = func(msg any) { p.Send(msg) }
	f.begin()
	_, err := p.Run()
	stop()
	f.wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}
